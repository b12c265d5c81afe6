"""The settings for messages that arrive while an earlier one is being answered, and about late ones.

The same keys are in three places, the nearer one wins: the agent's `queue`, the channel account's, the file's own.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from channels.section import Section

QueueMode: TypeAlias = Literal["collect", "followup", "steer", "interrupt"]
StalePolicy: TypeAlias = Literal["answer", "label", "drop"]


class QueueConfig(Section):
    """The fate of messages that arrive while an earlier one is being answered, and of late ones."""

    mode: QueueMode | None = None
    """`collect` (the default): those of one person become one next turn. `followup`: one turn each. `steer`: the
    running turn gets them after its tool results. `interrupt`: the running turn is stopped, the newest message starts
    again. In a group, `steer` and `interrupt` change only an answer to the same person; other people's messages get
    separate turns, in order."""
    debounce_seconds: Annotated[float, Field(ge=0, le=60)] | None = None
    """`collect`: how long the chat must be quiet before what came during a turn is answered; 0.5 if nothing is said.
    The first message of an idle chat is never held back."""
    stale_after_seconds: Annotated[float, Field(gt=0)] | None = None
    """A message that is older than this when its turn comes, after an outage, is late; 900 if nothing is said."""
    stale: StalePolicy | None = None
    """Late messages: `answer` as usual, `label` the answer with their age (if nothing is said), or `drop` them with a
    record in the log."""
