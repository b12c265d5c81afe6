"""The layers of a turn that the journal does not have, kept beside it: who may see it and why it was handled as it was, the
prompt and the tools of its requests, and its record. `Layers.row` makes of them what the turn's last commit writes.

A record keeps numbers and references, no text that is journaled anyway. A process that dies takes its record along; the
journal's rows still tell the turn, and the row of the process that ends it says that it was resumed.
"""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import structlog

from agents import turn as events
from agents.messages import AssistantMessage
from agents.providers.provider import Done, ModelRequest, OneTool
from agents.turn import Emit, TurnEvent
from channels.bilingual import Bilingual
from channels.message import MessageContext
from gateway.observe.logs import logged
from gateway.observe.secrets import redacted
from gateway.state.ending import Ending
from gateway.state.reasons import (
    Because,
    access_reason,
    agent_reason,
    binding_reason,
    model_reason,
    session_reason,
    tools_reason,
)
from gateway.state.runtime import Runtime, Setup
from gateway.store.inbound import Inbound
from gateway.store.layers import LayerRow
from gateway.store.sessions import is_control, person_of, session_parts
from gateway.turns.batch import Batch

log = structlog.get_logger()


WORDS_CHARS_MAX = 500


@dataclass(kw_only=True, slots=True)
class TurnRecord:
    """The facts that one process has seen of a turn. Times are seconds since `began`."""

    emit: Emit
    began: float
    setup: Setup
    numbers: Sequence[int]
    resumed: bool
    clock: Callable[[], float] = time.perf_counter
    zero: float = field(init=False)
    started: events.TurnStarted | None = None
    request: ModelRequest | None = None
    ready: float | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.zero = self.clock()

    def follow(self, event: TurnEvent) -> None:
        self.emit(event)
        if type(event) is events.ModelStreamed and type(event.event) is not Done:  # a piece: there may be hundreds
            if self.requests and "first" not in (last := self.requests[-1]):
                last["first"] = self._now()
            return
        with logged("layers_not_noted"):  # who watches a turn never ends it
            self._note(event)

    def _note(self, event: TurnEvent) -> None:
        match event:
            case events.ModelStreamed(event=Done(message=message)):
                self._done(message)
            case events.ModelCalled():
                self._called(event)
            case events.ToolStarted(call=call):
                round_ = self.requests[-1]["round"] if self.requests else 0
                self.calls.append({"id": call.id, "round": round_, "at": self._now()})
            case events.ToolReturned(call=call):
                if noted := self._call(call.id, "s"):
                    noted["s"] = round(self._now() - noted["at"], 4)
            case events.ToolFinished(result=result, chars=chars, cut=cut):
                if noted := self._call(result.call_id, "chars"):
                    noted |= {"chars": chars, "cut": cut}
            case events.TurnStarted():
                self.started, self.ready = event, self._now()
            case _:
                return

    def _now(self) -> float:
        return round(self.clock() - self.zero, 4)

    def _called(self, event: events.ModelCalled) -> None:
        request = self.request = event.request
        choice = request.tool_choice
        noted: dict[str, Any] = {"round": event.round, "provider": event.provider, "model": request.model}
        noted |= {"at": self._now(), "max": request.max_tokens, "own": event.own, "held": event.held}
        if event.held and self.numbers:
            held = self.numbers[-event.held :]
            noted |= {"from": held[0], "to": held[-1]}
        if event.summary:
            noted["summary"] = True
        if request.thinking:
            noted["think"] = request.thinking
        if choice != "auto":
            noted["choice"] = choice.name if isinstance(choice, OneTool) else choice
        self.requests.append(noted)

    def _done(self, message: AssistantMessage) -> None:
        """Notes the end of an attempt; a failed one stays as such."""
        if not self.requests:
            return
        noted, usage = self.requests[-1], message.usage
        if "stop" in noted:
            noted.setdefault("failed", []).append(
                {"at": noted["s"], "error": noted.pop("error", ""), "words": noted.pop("words", "")}
            )
        noted |= {"provider": message.provider or noted["provider"], "model": message.model or noted["model"]}
        noted |= {"s": round(self._now() - noted["at"], 4), "stop": message.stop_reason, "stamp": message.timestamp}
        noted["usage"] = [usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning]
        if usage.estimated:
            noted["estimated"] = True
        if message.cost is not None:
            noted["cost"] = message.cost
        if message.response_id:
            noted["id"] = message.response_id
        if message.error:
            noted |= {
                "error": message.error.kind,
                "words": redacted(message.error.words or message.error.summary)[:WORDS_CHARS_MAX],
            }

    def _call(self, id_: str, missing: str) -> dict[str, Any] | None:
        """The oldest call of that id without a fact."""
        return next((it for it in self.calls if it["id"] == id_ and missing not in it), None)


RECORDS_MAX = 1_024
KNOWN_MAX = 256
"""Prompts, tools and routes whose hash is remembered."""


class Layers:
    """The records of the turns that run, and the texts that many of them share."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._records: dict[int, TurnRecord] = {}
        self._known: dict[Any, tuple[str, Mapping[str, str]]] = {}
        self._of: Setup | None = None
        """The setup that what is known is of."""

    def follow(self, batch: Batch, emit: Emit) -> Emit:
        """An `Emit` that notes the batch's turn and passes its events on; `emit` itself if nothing is kept."""
        if not batch.setup.config.console.keep_days or is_control(batch.lease.sid):
            return emit
        while len(self._records) >= RECORDS_MAX:  # left by turns that another worker took over
            del self._records[next(iter(self._records))]
        record = self._records[batch.turn] = TurnRecord(
            emit=emit,
            began=self._runtime.now(),
            setup=batch.setup,
            numbers=batch.work.numbers,
            resumed=bool(batch.work.so_far) and not batch.inbound.approval,
        )
        return record.follow

    def drop(self, turn: int) -> None:
        """Forgets the record of a turn that another run ends."""
        self._records.pop(turn, None)

    def row(
        self, sid: str, turn: int, inbound: Inbound | None, ending: Ending, at: float
    ) -> tuple[LayerRow, Mapping[str, str]] | None:
        """The row of a turn that ends, and the texts that it refers to. None if nothing is kept of it, or if it cannot be
        made: the turn ends all the same."""
        try:
            return self._row(sid, turn, inbound, ending, at)
        except Exception as error:
            log.error("layers_not_made", exc_info=error)
            return None

    def _row(
        self, sid: str, turn: int, inbound: Inbound | None, ending: Ending, at: float
    ) -> tuple[LayerRow, Mapping[str, str]] | None:
        record = self._records.pop(turn, None)
        if not self._runtime.setup.config.console.keep_days or is_control(sid):
            return None
        place = session_parts(sid)
        person = person_of(inbound.context) if inbound and inbound.context.sender.id else ""
        facts: dict[str, Any] = {"agent": place.agent, "channel": place.channel, "person": person}
        facts |= {"outcome": ending.outcome, "at": at}
        if ending.outcome == "recalled" or inbound is None:
            return LayerRow(**facts, content='{"recalled":true}' if inbound else "{}"), {}
        if record is None:
            return LayerRow(**facts), {}
        route, texts = self._route(record, inbound.context)
        content: dict[str, Any] = {"began": record.began, "requests": record.requests, "calls": record.calls}
        content |= {"resumed": True} if record.resumed else {}
        if (started := record.started) is not None:
            above, (shared, *own) = started.system.sections
            prompt, sections = self._remembered(
                ("prompt", above, shared), lambda: _prompt(above, shared, self._runtime.scrubber.scrub)
            )
            content |= {"ready": record.ready, "own": [self._runtime.scrubber.scrub(it) for it in own]}
            facts, texts = facts | {"prompt": prompt}, {**texts, **sections}
        if (request := record.request) is not None:
            tools, listed = self._remembered(
                ("tools", request.tools), lambda: _tools(request, self._runtime.scrubber.scrub)
            )
            facts, texts = facts | {"tools": tools}, {**texts, **listed}
        return LayerRow(**facts, route=route, content=orjson.dumps(content).decode()), texts

    async def keep(self, texts: Mapping[str, str]) -> None:
        """Store those of a turn's texts that the database lacks. Raises StoreUnavailable."""
        # Ask the database each time: an erasure, also one by another process, removes a text with the last turn that had it.
        if texts and (missing := await self._runtime.store.layers.missing(list(texts))):
            await self._runtime.store.layers.keep({name: texts[name] for name in missing})

    def _route(self, record: TurnRecord, context: MessageContext) -> tuple[str, Mapping[str, str]]:
        runtime, setup, turn = self._runtime, record.setup, record.started.turn if record.started else None
        agent = session_parts(turn.session).agent if turn else ""
        runner = setup.runners.get(agent)
        if turn is None or runner is None:
            return "", {}
        if setup is not self._of:
            self._of = setup
            self._known.clear()
        chosen, switch, names = runtime.choices.agent(context), runtime.choices.listens(context), setup.mcp.names
        where = (context.channel, context.account, context.chat.id, context.chat.kind, context.chat.thread)
        key = (
            "route",
            *where,
            context.sender.id,
            agent,
            chosen,
            switch,
            turn.settings.model,
            tuple(setup.owners),
            str(names),
        )

        def reasons() -> Mapping[str, Because]:
            config, owners = setup.config, setup.owners
            channel = setup.channel(context)
            model = turn.settings.model if turn.settings.model in config.choosable_models else None
            access = getattr(channel, "access", None)
            return {
                "agent": agent_reason(config, context, agent, chosen),
                "binding": binding_reason(config, context),
                "session": session_reason(runner.config, context),
                "access": access_reason(access, owners, context, switch=switch, pairing_state=lambda: "paired"),
                "model": model_reason(runner.config, model),
                "tools": tools_reason(config, owners, runner.config, context, names),
            }

        return self._remembered(key, lambda: _named("r", _written(reasons(), runtime.scrubber.scrub)))

    def _remembered(self, key: Any, make: Callable[[], tuple[str, Mapping[str, str]]]) -> tuple[str, Mapping[str, str]]:
        found = self._known.get(key)
        if found is None:
            while len(self._known) >= KNOWN_MAX:
                del self._known[next(iter(self._known))]
            found = self._known[key] = make()
        return found


def _written(reasons: Mapping[str, Because], scrub: Callable[[str], str]) -> str:
    """The session's key is left out: the turn has it, and so most chats share the text."""
    values = {name: None if name == "session" else it.value for name, it in reasons.items()}
    shown = {name: {"value": values[name]} | _reason(it.reason, scrub) for name, it in reasons.items()}
    return orjson.dumps(shown).decode()


def _reason(reason: str | Bilingual, scrub: Callable[[str], str]) -> dict[str, str]:
    """The reason in English, and in Chinese if it has one."""
    return {"reason": scrub(str(reason))} | ({"zh": scrub(reason.zh)} if isinstance(reason, Bilingual) else {})


def _prompt(above: Sequence[str], below: str, scrub: Callable[[str], str]) -> tuple[str, Mapping[str, str]]:
    """The list of the sections that many chats share, and each section; `below` is beneath the cache boundary."""
    texts: dict[str, str] = {}
    listed: list[dict[str, Any]] = []
    for number, text in enumerate(map(scrub, (*above, below))):
        name, own = _named("s", text)
        texts |= own
        is_stable = number < len(above)
        listed.append({"heading": heading_of(text), "chars": len(text), "stable": is_stable, "hash": name})
    prompt, own = _named("p", orjson.dumps(listed).decode())
    return prompt, {**texts, **own}


def _tools(request: ModelRequest, scrub: Callable[[str], str]) -> tuple[str, Mapping[str, str]]:
    tools = [
        {
            "name": it.name,
            "summary": scrub(it.summary),
            "description": scrub(it.description),
            "parameters": it.input_schema,
        }
        for it in request.tools
    ]
    return _named("t", orjson.dumps(tools).decode())


def heading_of(section: str) -> str:
    """The heading of a section of the prompt; empty for the first one."""
    first = section.partition("\n")[0]
    return first.removeprefix("## ") if first.startswith("## ") else ""


def _named(kind: str, text: str) -> tuple[str, Mapping[str, str]]:
    """The text under its hash, which begins with its kind."""
    name = f"{kind}{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:24]}"
    return name, {name: text}
