"""The system prompt of a turn: the sections that apply, in order, split at the provider's cache boundary.

Deterministic for equal facts. Nothing about a single message goes in here; that is in the user message
(`agents.prompt.inbound`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeAlias

import skills.catalog
from agents.config import AgentConfig
from agents.prompt.fences import CALLER, SILENT, harmless, one_line, without_boundary
from agents.prompt.texts import wording
from agents.providers.provider import System
from channels.message import ChatKind
from skills.catalog import Skill
from tools.config import ExecMode
from tools.paths import MEMORY
from tools.policy import may_ask, server_of
from tools.tool import ToolSpec

Commands: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]
"""A chat's command names, everybody's and the owners'; equal for all members, as the prompt is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LastingFacts:
    """Inputs of the stable half: equal for all chats of an agent until a file, the config or the policy changes.
    `tools` and `skills` are those that the policy permits."""

    agent: AgentConfig
    tools: tuple[ToolSpec, ...]
    skills: tuple[Skill, ...]
    workspace: str
    docs: str | None
    """The path of the gateway's documentation; None if the agent cannot read it."""
    workspace_files: tuple[tuple[str, str], ...]
    """Name and text, from `read_workspace_files`."""
    directives: tuple[str, ...]
    """The answer directives that the channel supports: `media`, `voice`, `reply`."""
    chat_kind: ChatKind
    exec_mode: ExecMode = "ask"
    """The operator's policy for `exec`."""
    approval: tuple[str, ...] = ()
    """Other tools whose calls may need an approval."""
    commands: Commands = ((), ())
    reports_ends: bool = True
    """A background command's end can be reported to the chat."""

    def has(self, *names: str) -> bool:
        return any(tool.name in names for tool in self.tools)

    @property
    def has_skills(self) -> bool:
        return bool(self.skills) and self.has("read")

    @property
    def asks(self) -> bool:
        return may_ask([tool.name for tool in self.tools], self.exec_mode, self.approval)


_LASTING = attrgetter(*(it.name for it in fields(LastingFacts)))


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptFacts(LastingFacts):
    """All inputs of one turn's system prompt."""

    channel: str
    capabilities: tuple[str, ...]
    session: str
    caller: str = ""
    """The system prompt of a calling program."""
    reasoning: bool = False
    """The user sees the model's reasoning above the answers."""


GATEWAY = "Clawgate"
FILE_TOOLS = ("read", "write", "edit", "ls")


def build_system(facts: PromptFacts) -> System:
    """Return both parts without the boundary. The stable part is cached by its inputs. The volatile one is not: a
    program's prompt may be as long as its request."""
    stable, parts = _rendered(_LASTING(facts))
    below = tuple(_volatile(facts))
    return System(stable=stable, volatile=_joined(*below), sections=(parts, below))


@lru_cache(maxsize=64)
def _rendered(lasting: tuple[Any, ...]) -> tuple[str, tuple[str, ...]]:
    facts = LastingFacts(**{it.name: value for it, value in zip(fields(LastingFacts), lasting, strict=True)})
    parts = (identity(facts), *_stable(facts))
    return _joined(*parts), parts


def _joined(*sections: str) -> str:
    return "\n\n".join(sections).strip()


def _section(heading: str, *lines: str) -> str:
    return "\n".join((f"## {heading}", *lines))


def _worded(heading: str, *more: str) -> str:
    return _section(heading, wording(heading), *more)


def _stable(facts: LastingFacts) -> Iterator[str]:
    yield _section("Tooling", *tooling(facts))
    if facts.tools:
        yield _section("Tool Call Style", *tool_call_style(facts))
        yield _worded("Execution Bias", *(wording(f"Execution Bias, {it}") for it in later_work(facts)))
    yield _worded("Safety")
    if any(facts.commands):
        whose = zip(("everybody", "the owners of this bot"), facts.commands, strict=True)
        lines = (f"- Of {who}: {', '.join(f'/{name}' for name in names)}" for who, names in whose if names)
        yield _worded("Gateway Control", *lines)
    if facts.agent.system_prompt.strip():
        yield _section("Agent Instructions", without_boundary(facts.agent.system_prompt.strip("\r\n")))
    if facts.has_skills:
        yield _worded("Skills", skills.catalog.render(facts.skills))
    if facts.has(*FILE_TOOLS):
        yield _section("Workspace", f"Your working directory is {one_line(facts.workspace)}", wording("Workspace"))
    if facts.docs:
        place = f"The documentation of {GATEWAY} itself lies in {one_line(facts.docs)}"
        yield _section("Documentation", place, wording("Documentation"))
    if facts.workspace_files:
        yield _worded("Workspace Files (injected)", *map(_file, facts.workspace_files))
    if facts.directives:
        media = "media of the web" if facts.has("web_fetch") else "media"
        names = [{"media": media}.get(it, it) for it in ("media", "voice", "reply") if it in facts.directives]
        yield _worded("Assistant Output Directives", *(wording(f"Assistant Output Directives, {it}") for it in names))
    if facts.chat_kind == "group":
        yield _worded("Silent Replies")


def _volatile(facts: PromptFacts) -> Iterator[str]:
    yield _section("Messaging", *messaging(facts))
    if facts.caller.strip():
        yield _worded(CALLER, "", harmless(facts.caller.strip()))
    yield _section("Runtime", runtime(facts))


def identity(facts: LastingFacts) -> str:
    name = one_line(facts.agent.name).strip() or one_line(facts.agent.id)
    return (
        f"You are {name}, an assistant whom people reach in their chats. "
        f"{GATEWAY} is the gateway that carries messages between them and you."
    )


def tooling(facts: LastingFacts) -> Sequence[str]:
    if not facts.tools:
        return ["You have no tools here. Answer from what you know, and say so where that is not enough."]
    return [
        "These tools are available, after policy. Names are case-sensitive: call them exactly as written.",
        *(f"- {one_line(tool.name)}: {one_line(tool.summary)}" for tool in facts.tools),
        "This list decides what exists. A TOOLS.md in the workspace is guidance on using tools; it adds none.",
    ]


def tool_call_style(facts: LastingFacts) -> Iterator[str]:
    runs, choice = facts.has("exec", "process"), facts.agent.tool_choice
    yield wording("Tool Call Style")
    if facts.asks:
        yield wording("Tool Call Style, with approvals")
    if facts.has("web_fetch", "web_search") or any(server_of(it.name) for it in facts.tools):
        yield wording("Tool Call Style, with text of strangers")
    if facts.has("memory_search"):
        yield wording("Tool Call Style, with a memory")
    if choice == "required":
        yield "- Begin with a tool call whenever you are asked something, before you say anything."
    elif choice not in ("auto", "none"):
        yield f"- Begin with a call of `{choice}` whenever you are asked something."
    if runs and facts.exec_mode == "deny":
        yield wording("Tool Call Style, without commands")


def later_work(facts: LastingFacts) -> Iterator[str]:
    """Yield the texts on work after the answer, exactly as the tools allow."""
    runs = facts.exec_mode != "deny"
    later = [it for it in ("task", "process", "schedule") if facts.has(it)]
    if "process" in later and not (runs and facts.reports_ends):
        later.remove("process")
    yield "with later work" if later else "without later work"
    yield from (f"with {it}" for it in later)
    if runs and facts.has("process") and not facts.reports_ends:
        yield "with process, unreported"
    if runs and facts.has("exec") and not facts.has("process"):
        yield "with exec alone"
    if later and "schedule" not in later:
        yield "without schedule"


def _file(file: tuple[str, str]) -> str:
    name, content = file  # notes are untrusted
    lead = f"{wording(MEMORY)}\n" if name == MEMORY else ""
    return f"\n### {one_line(name)}\n{lead}{harmless(content).strip()}"


def messaging(facts: PromptFacts) -> Sequence[str]:
    lines = ["- Your answer goes to the chat it was asked in by itself. You need no tool for it."]
    if facts.has("message"):
        lines += [
            "- Use the `message` tool only to send something proactively: `action=send`, `target`, `message`, and "
            "`channel` only when it differs from this one.",
            f"- If you have delivered the visible answer with `message`, answer {SILENT} so that it is not sent twice.",
        ]
    else:
        lines.append(
            "- You can write to no other chat or person here, except with a tool that says so: do not promise to pass a "
            "message on."
        )
    lines.append("- Never call a chat platform's API yourself, with curl or otherwise: the gateway does the sending.")
    return lines


def runtime(facts: PromptFacts) -> str:
    pairs = {
        "agent": facts.agent.id,
        "session": facts.session,
        "channel": facts.channel,
        "capabilities": ",".join(facts.capabilities) or "none",
        "thinking": facts.agent.thinking or "off",
    }
    line = " | ".join(f"{name}={one_line(value).replace('|', '¦')}" for name, value in pairs.items())
    thinking = "on: people read it above your answers" if facts.reasoning else "off: people do not see it"
    switch = f" (/reasoning {'off' if facts.reasoning else 'on'} changes that)"
    return f"{line}\nReasoning: {thinking}{switch if any('reasoning' in it for it in facts.commands) else ''}"
