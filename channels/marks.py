"""The gateway's own words, as they begin in what an agent reads as a person's message. Code that writes such words
builds them with these names; `agents.prompt.fences` breaks each of them in a person's text.

What replaces something that is no text (`[image]`, `[sticker]`, `(no text)`) is not here: a person can send that.
"""

NOTE = "(The gateway"
"""The line on the outcome of a message or of its files."""
OWN_TURN = "(A note of the gateway"
"""A turn that no person's words began."""
TAKEN_BACK = "(The person has taken this message back"
ANSWER_GONE = "(This answer was removed"
RESULT_GONE = "(This result was removed"
"""The line in the place of a tool's result that repeated what was recalled or erased."""
EDITED = "(edited)"
"""The mark above the new words of a message whose answer has begun."""
FORWARDED = "[forwarded from"
BUNDLE = "[merged and forwarded messages]"
VIA = "[via @"
"""The mark above words that an inline bot wrote in a person's name."""
BUTTON = "[button"
VOTE = "[poll vote"
TRANSCRIPT = "[transcript of"
LEFT_OUT = "[Earlier steps of this turn are left out"
RESULT = "[result of"
CALL = "[call"
"""A tool's mark, in a turn that is quoted."""

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
