"""Report the end of a task or background command: write transcript rows in the conversation that started it, and reply
to the message that asked for it.

Both report the same way: once, unless a turn already got the end as a tool result.
"""

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from agents.language import Language, language_for
from agents.messages import AssistantMessage, Text, ToolCall, ToolResultMessage, UserMessage, message_json
from agents.prompt.inbound import SAID, own_note
from channels.bilingual import Bilingual
from channels.message import Origin
from gateway.approvals.display import value
from gateway.state.ending import Ending, Reply
from gateway.state.runtime import Runtime
from gateway.turns.answering import spoken_in
from gateway.turns.batch import Batch
from gateway.turns.journal import entry

LINES_SHOWN = 12
LINE_CHARS_SHOWN = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandEnd:
    """The end of a background command. `seconds` is None if the gateway's restart lost it; `note` says how it ended;
    `details` are those of the tool result."""

    note: str
    details: dict[str, str | int | None]
    seconds: float | None = None


command_end_json: TypeAdapter[CommandEnd] = TypeAdapter(CommandEnd)


async def report_command(runtime: Runtime, batch: Batch) -> Ending:
    """Write the transcript rows and return the reply that says how a background command ended. Raises Fenced or
    Revised."""
    context, origin = batch.inbound.context, batch.inbound.context.origin
    if origin is None or batch.inbound.recalled:
        return Ending(outcome="reported", reason="gone")
    end, output = command_end_json.validate_json(batch.inbound.arguments), context.text
    if not batch.work.so_far:
        rows = await runtime.store.tasks.results(batch.lease.sid, int(origin.run), origin.id)
        if not rows:  # what started it was taken back
            return Ending(outcome="reported", reason="gone")
        if any(tells(row, origin.id) for row in rows):
            return Ending(outcome="reported", reason="known")
        text = f"{output}\n[{end.note}]".lstrip("\n")
        given = ToolResultMessage(
            call_id="", tool="process", content=(Text(text=text),), is_error=False, details=dict(end.details)
        )
        await keep(runtime, batch, {"action": "poll", "id": origin.id}, given)
    head = _head(origin, end, language_for(context))
    return Ending(outcome="reported", reply=Reply(text="\n\n".join(filter(None, (head, _last_lines(output))))))


async def keep(runtime: Runtime, batch: Batch, arguments: dict[str, Any], given: ToolResultMessage) -> None:
    """Write the rows of a report: the gateway's note, and the end as the result of a call with these arguments.
    Raises Fenced or Revised."""
    context, at, turn = batch.inbound.context, runtime.now(), batch.turn
    assert context.origin is not None
    note = f"[message_id: {context.message_id}]\n{own_note(context.origin, SAID[context.origin.kind])}"
    call = ToolCall(
        id=f"call{context.origin.id}", name=given.tool, arguments=arguments, arguments_raw=json.dumps(arguments)
    )
    user = UserMessage(content=(Text(text=note),), timestamp=at)
    asks = AssistantMessage(content=(call,), provider="", model="", api="", stop_reason="tool_use", timestamp=at)
    given = replace(given, call_id=call.id, timestamp=at)
    spoken = [spoken_in(context, "said", 1)]
    entries = [replace(entry(turn, user), spoken=spoken), entry(turn, asks), entry(turn, given)]
    await runtime.store.append(batch.lease, entries, revision=batch.work.revision)


def tells(row: str, id_: str) -> bool:
    """Return whether a tool result in the transcript already says how the task or command ended."""
    with suppress(ValidationError):
        message = message_json.validate_json(row)
        details = message.details if isinstance(message, ToolResultMessage) else None
        return bool(details and details.get("id") == id_ and details.get("state") not in (None, "running", "elsewhere"))
    return False


def _head(origin: Origin, end: CommandEnd, language: Language) -> str:
    id_, name, note = origin.id, value(origin.title), end.note.partition(": ")[2]
    if end.seconds is None:
        return Bilingual(
            f"Command {id_}, {name}, was lost: the gateway restarted, which ended it. Its last output may be missing.",
            f"命令 {id_}（{name}）已丢失：网关重新启动，命令随之结束，最后的输出可能不完整。",
        )(language)
    return Bilingual(
        f"Command {id_}, {name}, has ended after {end.seconds:.0f} s: {note}",
        f"命令 {id_}（{name}）已结束，用时 {end.seconds:.0f} 秒：{note.replace('exit code', '退出码')}",
    )(language)


def _last_lines(output: str) -> str:
    lines = [it[:LINE_CHARS_SHOWN].replace("```", "'''") for it in output.rstrip().splitlines()[-LINES_SHOWN:]]
    return "\n".join(("```", *lines, "```")) if lines else ""
