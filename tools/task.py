"""`task`: hand a piece of work to another run of an agent, which works independently and reports back.

The work outlives the turn: its result is sent as a reply to the message that asked for it, or is given to this turn if
it waits. It has the rights of the user who asked and never more tools than this agent; a task starts no tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias

from pydantic import Field

from tools.tool import Arguments, Call, ToolError, ToolResult

PROMPT_CHARS_MAX = 20_000
TITLE_CHARS_MAX = 60
DelegateState: TypeAlias = Literal["running", "ended", "failed", "stopped", "recalled"]


class TaskArguments(Arguments):
    action: Literal["start", "list", "stop"] = Field(description="What to do.")
    title: str | None = Field(
        default=None, max_length=200, description="For `start`: a few words that people recognise."
    )
    prompt: str | None = Field(
        default=None,
        max_length=PROMPT_CHARS_MAX,
        description="For `start`: the whole task. It is all that the other run knows: name files, facts and what to answer.",
    )
    agent: str | None = Field(default=None, description="For `start`: another agent's id; you yourself if left out.")
    wait: bool = Field(default=False, description="For `start`: wait for the result here instead of having it sent.")
    id: str | None = Field(
        default=None, description="For `stop`: which task. For `list`: only that one, with its result."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """A piece of work; `agent` None is the agent that asks."""

    prompt: str
    title: str
    agent: str | None = None
    waits: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Delegated:
    """A task as its conversation sees it. `external`: its title or result may hold external content. `seconds` is its
    age."""

    id: str
    title: str
    agent: str
    state: DelegateState
    seconds: float
    result: str = ""
    external: bool = False


class Delegate(Protocol):
    """The port by which the tool delegates work; the gateway supplies it. Every method raises `ToolError`. A repeated
    call finds the task that it has started."""

    async def start(self, order: Order, call: Call) -> Delegated:
        """Start the task, unless the call has done so; with `waits`, return once it has ended or the wait has timed
        out."""

    async def tasks(self, call: Call) -> Sequence[Delegated]:
        """Return the tasks of the conversation, oldest first."""

    async def stop(self, id_: str, call: Call) -> Delegated: ...


@dataclass
class TaskTool:
    delegate: Delegate
    spec = TaskArguments.spec(
        "task",
        summary="hand work to another run of an agent, which reports back",
        description=(
            "Hand a piece of work to another run of yourself, or of another agent, that works beside this conversation. "
            "It sees nothing of this conversation but the prompt, cannot ask anybody back and has no more tools than you. "
            "Without `wait` you go on at once: say that it runs, for its result is sent to the chat by itself, as a reply "
            "to the current message, and you then find it in the conversation. `list` shows the tasks, `stop` ends one."
        ),
        effect="keyed",
    )
    parse = staticmethod(TaskArguments.parse)

    async def run(self, arguments: TaskArguments, call: Call) -> ToolResult:
        match arguments.action:
            case "start":
                prompt = (arguments.prompt or "").strip()
                if not prompt:
                    raise ToolError("INVALID_ARGUMENT", "'prompt' is required for start")
                title = " ".join((arguments.title or prompt).replace("\0", " ").split())  # no database takes a NUL
                title = title.encode(errors="replace").decode()  # nor half a surrogate pair
                title = title if len(title) <= TITLE_CHARS_MAX else title[: TITLE_CHARS_MAX - 1] + "…"
                order = Order(prompt=prompt, title=title, agent=arguments.agent, waits=arguments.wait)
                begun = await self.delegate.start(order, call)
                more = "It still runs. Its" if arguments.wait else "Its"
                note = f"Started task {begun.id} ({begun.title}). {more} result is sent to the chat by itself when it ends."
                is_running = begun.state == "running"
                result = _result(begun, note if is_running else "")
                result = replace(result, is_error=begun.state not in ("running", "ended"))
                return replace(result, external=False) if is_running else result  # the words are this turn's own
            case "list" if arguments.id is not None:
                task = next((it for it in await self.delegate.tasks(call) if it.id == arguments.id), None)
                if task is None:
                    raise ToolError("NOT_FOUND", f"this conversation has no task {arguments.id[:64]!r}")
                return _result(task, _line(task))
            case "list":
                tasks = await self.delegate.tasks(call)
                details: dict[str, Any] = {"tasks": {it.id: it.state for it in tasks}}
                external = any(it.external for it in tasks)
                details |= {"url": "tasks"} if external else {}
                text = "\n".join(map(_line, tasks)) or "(no tasks)"
                return ToolResult(content=(text,), details=details, external=external)
            case "stop":
                if not arguments.id:
                    raise ToolError("INVALID_ARGUMENT", "'id' is required for stop")
                return _result(await self.delegate.stop(arguments.id, call), "")


def _result(task: Delegated, line: str) -> ToolResult:
    text = task.result if task.state != "running" and task.result else line or _line(task)
    # text of a failed or stopped task must not read like a result
    text = text if task.state in ("running", "ended") else f"{failure(task.id)} {text}"
    details = {"id": task.id, "state": task.state, **({"url": f"task {task.id}"} if task.external else {})}
    return ToolResult(content=(text,), details=details, external=task.external)


def failure(id_: str) -> str:
    """Return the prefix for the text of a task that failed or was stopped."""
    return f"Task {id_} failed:"


def _line(task: Delegated) -> str:
    state = f"running, {task.seconds:.0f} s" if task.state == "running" else task.state
    return f"{task.id} {state}: {task.title} (agent {task.agent})"
