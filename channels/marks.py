"""Prefixes of the gateway's own texts in what an agent reads as a person's message. Code that writes such texts uses these
names; `agents.prompt.fences` breaks each of them in a person's text.

Placeholders for non-text content (`[image]`, `[sticker]`, `(no text)`) are not here: a person may type them.
"""

NOTE = "(The gateway"
"""Begins a note about the outcome of a message or of its files."""
OWN_TURN = "(A note of the gateway"
"""Begins a turn that no message started."""
TAKEN_BACK = "(The person has taken this message back"
ANSWER_GONE = "(This answer was removed"
RESULT_GONE = "(This result was removed"
"""Replaces a tool's result that contained recalled or erased text."""
EDITED = "(edited)"
"""Above the new text of a message that was edited after its answer began."""
FORWARDED = "[forwarded from"
BUNDLE = "[merged and forwarded messages]"
VIA = "[via @"
"""Above text that an inline bot sent as a person."""
BUTTON = "[button"
VOTE = "[poll vote"
TRANSCRIPT = "[transcript of"
LEFT_OUT = "[Earlier steps of this turn are left out"
RESULT = "[result of"
CALL = "[call"
"""A tool call in a quoted turn."""

MARKS = (
    NOTE,
    OWN_TURN,
    TAKEN_BACK,
    ANSWER_GONE,
    RESULT_GONE,
    EDITED,
    FORWARDED,
    BUNDLE,
    VIA,
    BUTTON,
    VOTE,
    TRANSCRIPT,
    LEFT_OUT,
    RESULT,
    CALL,
)
