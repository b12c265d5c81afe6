"""Turns of agents that other programs run, such as Claude Code: prompts in, growing text and tool lines out.

A program asks for permission while it works. Where a person must decide, the prompt is cancelled and the turn ends, as
with any approval: the decision begins a turn of its own, which tells the program to go on, and the same request is then
allowed once. So nothing waits in a lane, and a crash runs nothing twice: a turn that a process died in is not repeated,
and says so.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import structlog

from agents import sentences
from agents.config import AgentConfig, RunnerConfig
from agents.language import language_for
from agents.messages import (
    AssistantMessage,
    AssistantPart,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    texts,
)
from agents.providers.provider import System, TextDelta
from agents.repair import substitute
from agents.turn import (
    Answered,
    Budget,
    Declined,
    Emit,
    Journal,
    LimitReached,
    ModelAnswered,
    ModelStreamed,
    Outcome,
    RunnerFailed,
    ToolFinished,
    ToolStarted,
    Turn,
    TurnLimits,
    TurnResult,
    TurnStarted,
)
from tools.config import ExecMode
from tools.mcp.config import McpServerConfig
from tools.mcp.server import Environment, started
from tools.tool import Call, Gate, Image, Permit, Request, Subject, ToolError, ToolResult, canonical, failed
from tools.web.client import WebClient
from tools.workspace import UPLOADS, Workspace

if TYPE_CHECKING:
    from agents.acp.process import AcpProcess

PROVIDER = "acp"
"""The provider of its answers, as `acp/AGENT`."""
TOOL_PREFIX = "runner:"
"""The name of a call that a person approves is this and its kind: `runner:edit`."""
START_SECONDS = 60.0
TEXT_CHARS_MAX = 200_000
CALLS_MAX = 2_000
HISTORY_CHARS = 8_000
FILE_BYTES_MAX = 10 * 1024 * 1024
TITLE_CHARS = 300
NO_USAGE = Usage()
_CHANGES = ("write", "edit")
_NEEDS = {"edit": _CHANGES, "delete": _CHANGES, "move": _CHANGES, "execute": ("exec",), "read": ("read",)}
"""The gateway's tools for each kind of call, one of which a person must have for the program to make it."""
_MARKS = {"completed": "x", "in_progress": "~", "pending": " "}

log = structlog.get_logger()


class AcpFailure(Exception):
    """The program died, did not start, broke the protocol or lacks its login; the message says so in one sentence."""


@dataclass(kw_only=True)
class AcpRun:
    """One turn's circumstances. `mode` is that of `tools.exec`: it decides what a permission request gets."""

    config: AgentConfig
    workspace: Workspace
    turn: Turn
    journal: Journal
    emit: Emit
    limits: TurnLimits
    mode: ExecMode
    names: Collection[str]
    """The tools that the people of this turn have: a request of the program needs the one that does the same."""
    now: Callable[[], float]
    budget: Budget | None = None
    gate: Gate | None = None

    def __post_init__(self) -> None:
        own = self.config.runner.cwd
        self.folder = Workspace(root=Path(own)) if own else self.workspace
        """The program's working folder, where it reads and writes."""


@dataclass(eq=False)
class _Live:
    """A running program. `key` is what it was started with: a change needs a new one."""

    process: "AcpProcess"
    key: tuple[object, ...]
    prompts: int = 0
    closing: asyncio.TimerHandle | None = None


class AcpAgents:
    """The running programs, one for each session. It outlives a reload of the config."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._live: dict[tuple[str, str], _Live] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, run: AcpRun) -> TurnResult:
        """Answer the turn's message, or return how that failed. Raises what the journal and the budget raise."""
        turn, language = run.turn, language_for(run.turn.context)
        words = run.config.system_prompt
        system = System(stable=words, volatile="", sections=((words,), ("",)))
        run.emit(TurnStarted(agent=run.config.id, turn=turn, system=system))
        waits = _open_call(turn)
        if turn.interrupted:
            if waits is not None:
                await _answer(run, waits, failed(substitute(begun=True)))
            return TurnResult(outcome=Answered(message=_message(run, sentences.runner_interrupted(language))))
        if run.budget and (spent := await run.budget.exhausted()):
            return TurnResult(outcome=spent)
        try:
            live, is_new = await self._process(run)
            work = AcpWork(run, waits)
            async with asyncio.timeout(run.limits.turn_seconds):
                response = await live.process.prompt(
                    work, _prompt(run, waits, is_new=is_new), _images(run, live.process)
                )
                live.prompts += 1
        except TimeoutError:
            await self._end(run.config.id, turn.session)  # it may not have ended the prompt
            return TurnResult(outcome=LimitReached(limit="turn-time"), tainted=turn.tainted)
        except (AcpFailure, ToolError, OSError) as error:
            reason = error.message if isinstance(error, ToolError) else str(error)
            log.warning("acp_failed", agent=run.config.id, reason=reason)
            await self._end(run.config.id, turn.session)
            return TurnResult(outcome=RunnerFailed(reason=reason), tainted=turn.tainted)
        finally:
            self._rest(run)
        return await work.ended(response, live.process.session)

    async def _process(self, run: AcpRun) -> tuple[_Live, bool]:
        """Return the session's program, started if it is not running, and whether it knows nothing of the conversation.
        Raises AcpFailure, ToolError and OSError."""
        agent, session = run.config.id, run.turn.session
        key = (run.config.runner, str(run.workspace.root), run.workspace.hides_private)
        known = _session_of(run.turn)
        live = self._live.get((agent, session))
        if live and live.process.is_alive and live.key == key and (known == live.process.session or not live.prompts):
            if live.closing:
                live.closing.cancel()
            return live, live.prompts == 0
        await self._end(agent, session)
        process = await _started(run.config, run.workspace, self._environment)
        live = self._live[agent, session] = _Live(process=process, key=key)
        runner, version = run.config.runner, self._environment.version
        try:
            resumed = await process.open(
                str(run.folder.root), resume=known, mode=runner.mode, version=version, seconds=START_SECONDS
            )
        except BaseException:
            await asyncio.shield(self._end(agent, session))
            raise
        log.info("acp_started", agent=agent, program=process.title, resumed=resumed)
        live.prompts = int(resumed)
        return live, not resumed

    def _rest(self, run: AcpRun) -> None:
        """End the program once it has been idle for `limits.acpIdleSeconds`."""
        if live := self._live.get((run.config.id, run.turn.session)):
            if live.closing:
                live.closing.cancel()
            names = run.config.id, run.turn.session
            loop = asyncio.get_running_loop()
            live.closing = loop.call_later(run.limits.acp_idle_seconds, lambda: self._spawn(self._end(*names)))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, agent: str, session: str) -> None:
        if live := self._live.pop((agent, session), None):
            if live.closing:
                live.closing.cancel()
            await live.process.close()

    async def close(self) -> None:
        for names in [*self._live]:
            await self._end(*names)


@dataclass
class AcpWork:
    """`AcpTurn` of one prompt: collects what the program says, and decides what it asks. `waits` is the call of the
    request that was decided, if the turn continues with one."""

    run: AcpRun
    waits: ToolCall | None
    pending: list[str] = field(default_factory=list)
    """Titles of the calls that wait for a person's decision."""
    _text: list[str] = field(default_factory=list)
    _thoughts: list[str] = field(default_factory=list)
    _plan: Sequence[Any] = ()
    _chars: int = 0
    _may_have_run: bool = False
    """True if the decided call may have run before a restart, so it is not run again."""
    _calls: dict[str, ToolCall] = field(default_factory=dict)
    _permits: list[Permit] = field(default_factory=list)

    def updated(self, update: Any) -> None:
        match update.session_update:
            case "agent_message_chunk":
                self._say(getattr(update.content, "text", ""))
            case "agent_thought_chunk":
                self._thoughts.append(self._counted(getattr(update.content, "text", "")))
            case "tool_call" if len(self._calls) < CALLS_MAX:
                self._begin(update)
            case "tool_call_update" if update.status in ("completed", "failed"):
                self._finish(update)
            case "plan":
                self._plan = update.entries[:50]

    async def permitted(self, call: Any) -> bool | None:
        run, known = self.run, self._calls.get(call.tool_call_id)
        title = _line(call.title or (known.arguments or {}).get("title", "") if known else call.title or "")
        kind = call.kind or (known.name if known else "other")
        if run.mode == "deny" or not self._has(_NEEDS.get(kind, ())):
            return False
        arguments = {"title": title, "kind": kind, "input": call.raw_input, "content": _diffs(call)}
        request = _request(kind, arguments, run)
        is_decided = self.waits is not None and canonical(self.waits.arguments) == canonical(arguments)
        id_ = self.waits.id if is_decided and self.waits else f"{call.tool_call_id}"[:64]
        asked = Call(
            id=id_,
            key=f"{run.turn.key}:{id_}",
            message=run.turn.context,
            session=run.turn.session,
            several=run.turn.several,
            tainted=run.turn.tainted,
        )
        if run.mode == "allow" and not (run.gate and run.gate.demands("exec", asked)):
            return True
        if run.gate is None:
            return False
        try:
            self._permits.append(await run.gate.admit(request, asked))
        except ToolError as error:
            if error.code != "EXEC_APPROVAL_PENDING":
                self._may_have_run = error.code == "INTERRUPTED"
                return False
            self.pending.append(title)
            return None
        return True

    def _has(self, tools: Sequence[str]) -> bool:
        return not tools or any(it in self.run.names for it in tools)

    def _check(self, tools: Sequence[str]) -> None:
        if not self._has(tools):
            raise ToolError("NOT_ALLOWED", f"the tool {' or '.join(tools)} is not allowed here")

    async def read(self, path: str) -> str:
        self._check(("read",))

        def content() -> str:
            with self.run.folder.reading(path) as fd, open(fd, "rb", closefd=False) as file:
                data = file.read(FILE_BYTES_MAX + 1)
            if len(data) > FILE_BYTES_MAX:
                raise ToolError("TOO_LARGE", f"the file is larger than {FILE_BYTES_MAX:,} bytes")
            return data.decode(errors="replace")

        try:
            return await asyncio.to_thread(content)
        except ToolError as error:
            is_inside = ".." not in Path(path).parts and Path(path).is_relative_to(self.run.folder.root)
            if error.code != "NOT_FOUND" or not is_inside:
                raise
            return ""  # as Zed answers: Gemini CLI 0.61 cannot create a file that it cannot read first

    async def write(self, path: str, text: str) -> None:
        self._check(_CHANGES)
        await asyncio.to_thread(self.run.folder.write, path, text.encode(errors="replace"))

    async def ended(self, response: Any, session: str) -> TurnResult:
        """Return the turn's result, with every decided call answered. Raises what the journal raises."""
        run, language = self.run, language_for(self.run.turn.context)
        done = ToolResult(content=("The program has gone on with it.",))
        for permit in self._permits:
            await permit.finished(done)
        if self.waits is not None:
            await _answer(run, self.waits, done)
        text = "\n\n".join(filter(None, (self._plan_text(), "".join(self._text).strip())))
        if self._may_have_run:
            text = f"{text}\n\n{sentences.runner_interrupted(language)}".strip()
        if self.pending:
            text = f"{text}\n\n{sentences.runner_waits(self.pending[0], language)}".strip()
        parts: list[AssistantPart] = [Thinking(text="".join(self._thoughts))] if self._thoughts else []
        message = _message(run, text, *parts, usage=_usage(response.usage), session=session)
        (run.budget.answers if run.budget else []).append(message)
        run.emit(ModelAnswered(round=1, message=message))
        outcome: Outcome = Answered(message=message, cut=response.stop_reason in ("max_tokens", "max_turn_requests"))
        if response.stop_reason == "refusal":
            outcome = Declined()
        elif not text:
            outcome = LimitReached(limit="empty")
        return TurnResult(outcome=outcome, answers=(message,), tainted=True)

    def _counted(self, text: str) -> str:
        room = max(0, TEXT_CHARS_MAX - self._chars)
        self._chars += len(text)
        return text[:room]

    def _say(self, text: str) -> None:
        if text := self._counted(text):
            self._text.append(text)
            self.run.emit(ModelStreamed(round=1, event=TextDelta(index=0, text=text)))

    def _begin(self, update: Any) -> None:
        arguments = {"title": _line(update.title)}
        call = ToolCall(
            id=update.tool_call_id[:200],
            name=update.kind or "other",
            arguments=arguments,
            arguments_raw=canonical(arguments),
        )
        if self._text and not self._text[-1].endswith("\n\n"):
            self._say("\n\n")
        self._calls[update.tool_call_id] = call
        self.run.emit(ToolStarted(call=call))

    def _finish(self, update: Any) -> None:
        if call := self._calls.get(update.tool_call_id):
            message = ToolResultMessage(
                call_id=call.id,
                tool=call.name,
                content=(Text(text=update.status),),
                is_error=update.status == "failed",
                timestamp=self.run.now(),
            )
            self.run.emit(ToolFinished(result=message))

    def _plan_text(self) -> str:
        return "\n".join(f"- [{_MARKS.get(it.status, ' ')}] {_line(it.content)}" for it in self._plan)


async def probe(config: AgentConfig, environment: Environment) -> str:
    """Start the agent's program in an empty folder, open a session, and return the program's name and version. Raises
    AcpFailure, ToolError and OSError."""
    with TemporaryDirectory() as folder:
        process = await _started(config, Workspace(root=Path(folder)), environment)
        try:
            await process.open(
                config.runner.cwd or folder, resume="", mode="", version=environment.version, seconds=START_SECONDS
            )
            return process.title
        finally:
            await process.close()


async def _started(config: AgentConfig, workspace: Workspace, environment: Environment) -> "AcpProcess":
    """Start the agent's program in the sandbox of commands. Raises ToolError and OSError."""
    from agents.acp.process import AcpProcess

    runner = config.runner
    network = WebClient(environment.web.but(allow_private=runner.allow_private)) if runner.network else None
    command = await started(
        _program(runner, workspace),
        environment.sandbox,
        environment.path,
        network,
        workspace=None if runner.cwd else workspace,
        besides={"UPLOADS": str(workspace.uploads)} if workspace.uploads else {},
    )
    return AcpProcess(command, config.id)


def _program(runner: RunnerConfig, workspace: Workspace) -> McpServerConfig:
    """Return the program as the sandbox of MCP servers starts one."""
    return McpServerConfig.model_construct(
        command=runner.acp,
        env=runner.env,
        cwd=runner.cwd or str(workspace.root),
        readable=runner.readable,
        sandbox=runner.sandbox,
    )


def _prompt(run: AcpRun, waits: ToolCall | None, *, is_new: bool) -> str:
    """Return the prompt: the message, or the decision. A program that knows nothing of the conversation also gets the
    agent's instructions and the newest part of the conversation."""
    turn = run.turn
    text = "\n\n".join(it.text for it in turn.user.sent_parts if isinstance(it, Text))
    if waits is not None:
        text += "\n\nGo on, and make this call again exactly as before if it was approved: " + str(
            (waits.arguments or {}).get("title", "")
        )
    if uploads := run.workspace.uploads:
        text = text.replace(f"./{UPLOADS}/", f"{uploads}/")
    if not is_new:
        return text
    before = [run.config.system_prompt.strip()]
    if "media" in turn.directives:
        before.append("To send a file of your working folder along with your answer, write a line `MEDIA:PATH`.")
    if earlier := _earlier(turn):
        before.append(f"The conversation so far, oldest first:\n{earlier}")
    return "\n\n".join((*filter(None, before), text))


def _earlier(turn: Turn) -> str:
    lines = [f"Summary: {turn.summary}"] if turn.summary else []
    said = [it for messages in turn.history for it in messages if isinstance(it, UserMessage | AssistantMessage)]
    lines += [f"{'User' if isinstance(it, UserMessage) else 'You'}: {chr(10).join(texts(it)).strip()}" for it in said]
    return "\n".join(lines)[-HISTORY_CHARS:]


def _images(run: AcpRun, process: "AcpProcess") -> list[tuple[str, str]]:
    if not process.takes_images:
        return []
    return [(it.media_type, it.data) for it in run.turn.user.content if isinstance(it, Image)]


def _request(kind: str, arguments: Mapping[str, Any], run: AcpRun) -> Request:
    shown = [str(arguments["title"])]
    raw = arguments["input"]
    if isinstance(raw, Mapping):
        shown += [f"{name}: {value if isinstance(value, str) else canonical(value)}" for name, value in raw.items()]
    elif raw is not None:
        shown.append(str(raw))
    shown += [it for it in arguments["content"] if it not in shown]
    facts = {"program": run.config.runner.acp[0], "workspace": str(run.folder.root)}
    subject = Subject(text="\n".join(shown), facts=facts, always=False)
    return Request(tool=f"{TOOL_PREFIX}{kind}", arguments=arguments, subject=subject)


def _diffs(call: Any) -> list[str]:
    """Return the changes to files that a call shows, whole: what is approved is what is shown."""
    diffs = [it for it in call.content or () if getattr(it, "type", "") == "diff"]
    return [f"{it.path}\n--- before\n{it.old_text or ''}\n+++ after\n{it.new_text}" for it in diffs]


def _open_call(turn: Turn) -> ToolCall | None:
    """Return the call of a decided request, with which the turn continues."""
    last = turn.so_far[-1] if turn.so_far else None
    return last.calls[0] if isinstance(last, AssistantMessage) and last.calls else None


async def _answer(run: AcpRun, call: ToolCall, result: ToolResult) -> None:
    content = tuple(Text(text=it) for it in result.content if isinstance(it, str))
    details = {"external": True} if result.external else None
    await run.journal.append(
        ToolResultMessage(
            call_id=call.id,
            tool=call.name,
            content=content,
            is_error=result.is_error,
            details=details,
            timestamp=run.now(),
        )
    )


def _session_of(turn: Turn) -> str:
    """Return the program's id of the session that the conversation's last answer came from; empty if there is none."""
    answers = [it for messages in turn.history for it in messages if isinstance(it, AssistantMessage)]
    found = next((it for it in reversed(answers) if it.provider == PROVIDER), None)
    return (found.response_id or "") if found else ""


def _message(
    run: AcpRun, text: str, *parts: AssistantPart, usage: Usage = NO_USAGE, session: str | None = None
) -> AssistantMessage:
    return AssistantMessage(
        content=(*parts, Text(text=text)),
        provider=PROVIDER,
        model=run.config.id,
        api=PROVIDER,
        stop_reason="end_turn",
        usage=usage,
        response_id=session or _session_of(run.turn) or None,
        timestamp=run.now(),
    )


def _usage(usage: Any) -> Usage:
    if usage is None:
        return Usage()
    return Usage(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cache_read=usage.cached_read_tokens or 0,
        cache_write=usage.cached_write_tokens or 0,
        reasoning=usage.thought_tokens or 0,
    )


def _line(text: str) -> str:
    return " ".join(str(text)[: 2 * TITLE_CHARS].split())[:TITLE_CHARS]
