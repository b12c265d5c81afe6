"""The section `schedules`: what the bot does by itself at its times."""

from typing import Annotated, Literal

from pydantic import StringConstraints, model_validator

from channels.section import Section

TEXT_CHARS_MAX = 4_000
Missed = Literal["once", "skip"]
ScheduleText = Annotated[str, StringConstraints(min_length=1, max_length=TEXT_CHARS_MAX)]


class ScheduleConfig(Section):
    """Something that the bot does by itself at its times, in one chat (docs/later.md)."""

    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
    """Its name: lower-case letters, digits, `-` and `_`."""
    to: str
    """The chat, as `channel:chat`, `channel:account:chat` or either with `#thread` behind it, such as
    `feishu:oc_0123456789abcdef`. A person's id is their direct chat."""
    at: str
    """Its times: five fields of cron such as `0 9 * * mon`, or `every 30m`, `every 6h`, `every 1d`, or one time such as
    `2026-12-24T18:00`."""
    say: ScheduleText | None = None
    """Text that is sent as it is: it costs no request to a model. Either this or `task`."""
    task: ScheduleText | None = None
    """The work that the agent is to do then, in the conversation of that chat."""
    agent: str | None = None
    """The `id` of the agent; by default the first."""
    timezone: str | None = None
    """The zone of `at`, such as `Europe/Berlin`; by default `server.timezone`."""
    missed: Missed = "once"
    """The rule for times at which the gateway was not running: `once` does it late, one time, with a line that says so;
    `skip` lets them pass."""
    enabled: bool = True
    """`false` pauses it."""

    @model_validator(mode="after")
    def _says_or_does(self) -> "ScheduleConfig":
        if (self.say is None) == (self.task is None):
            raise ValueError("expected either `say`, a text, or `task`, what the agent is to do")
        return self
