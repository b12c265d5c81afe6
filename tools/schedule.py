"""`schedule`: reminders and repeated work, in the chat and topic of the sender, for the sender.

The gateway stores them and starts a turn when one is due. The model resolves natural times; the result repeats the time
that was understood, for the user to read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import Field

from tools.tool import Arguments, Call, ToolError, ToolResult

TITLE_CHARS_MAX = 80
TEXT_CHARS_MAX = 4_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """A schedule on one line. `external`: the turn that made it had read external content."""

    line: str
    external: bool = False


class Schedules(Protocol):
    """A user's schedules; the gateway supplies it."""

    async def create(self, plan: "ScheduleArguments", call: Call) -> str:
        """Store a schedule for the sender of the call's message, in its chat, and say when it is first due. Raises
        ToolError."""

    async def listed(self, call: Call) -> Sequence[Planned]:
        """Return the sender's schedules, as far as the chat may read them."""

    async def cancel(self, id_: str, call: Call) -> str:
        """Cancel a schedule. Raises ToolError."""


class ScheduleArguments(Arguments):
    action: Literal["create", "list", "cancel"] = Field(description="What to do.")
    at: str | None = Field(
        default=None,
        max_length=100,
        description=(
            "For create: one local time, such as 2026-12-24T18:00; or five fields of cron, such as 0 9 * * mon; "
            "or every 30m, every 6h, every 1d."
        ),
    )
    say: str | None = Field(
        default=None,
        max_length=TEXT_CHARS_MAX,
        description="For create: the text that is sent then, as it is. The right one for a reminder.",
    )
    task: str | None = Field(
        default=None,
        max_length=TEXT_CHARS_MAX,
        description=(
            "For create, instead of say: what you are to do then, with everything that you must know for it. "
            "You do it in this conversation and answer with the result."
        ),
    )
    title: str | None = Field(
        default=None, max_length=TITLE_CHARS_MAX, description="For create: a few words, for the list."
    )
    id: str | None = Field(default=None, max_length=64, description="For cancel: the one that list shows.")


@dataclass
class ScheduleTool:
    schedules: Schedules

    spec = ScheduleArguments.spec(
        "schedule",
        summary="remind this chat, or do work in it, at a later time or regularly",
        description=(
            "Makes, lists and cancels reminders and repeated work of the person you are answering, in this chat. "
            "Work out the time from the message's timestamp and its zone, and tell the person the time that the "
            "result repeats. Times of cron and times without an offset are local ones."
        ),
        effect="keyed",
    )
    parse = staticmethod(ScheduleArguments.parse)

    async def run(self, arguments: ScheduleArguments, call: Call) -> ToolResult:
        if not call.message.sender.id:
            raise ToolError(
                "NOT_ALLOWED", "this turn is no person's: the operator writes such schedules into the config"
            )
        if arguments.action == "list":
            planned = await self.schedules.listed(call)
            external = any(it.external for it in planned)
            text = "\n".join(it.line for it in planned) or "There are none."
            return ToolResult(content=(text,), details={"url": "schedules"} if external else {}, external=external)
        if arguments.action == "cancel":
            if not arguments.id:
                raise ToolError("INVALID_ARGUMENT", "'id' is missing: list shows it")
            return ToolResult(content=(await self.schedules.cancel(arguments.id, call),))
        if not arguments.at or bool(arguments.say) == bool(arguments.task):
            raise ToolError("INVALID_ARGUMENT", "create needs 'at', and either 'say' or 'task'")
        return ToolResult(content=(await self.schedules.create(arguments, call),))
