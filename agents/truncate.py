"""The amount of a tool's result that the model is shown, and which part of it.

The head, and if the end matters (an error, an exit code, the close of a JSON document, a summary) the tail as well,
joined by a visible mark. The end says how much is missing and what to do about it.
"""

import re

TAIL_SHARE = 0.3
TAIL_CHARS_MAX = 4_000
END_CHARS = 2_000
WINDOW_SHARE = 0.3
CHARS_PER_TOKEN = 4
STUB_CHARS = 300
"""The characters left of a result that is shortened as far as it goes."""
OMISSION = "\n\n[… omitted …]\n\n"

_END_MATTERS = re.compile(
    r"error|exception|traceback|exit code|exit status|failed|fatal|panic|\b(?:total|summary|results?|done)\b", re.I
)

_OWN_NOTE = re.compile(r"\n+\[[^\n]*\bwere cut[^\n]*\]\s*\Z")


def result_limit_chars(window_tokens: int) -> int:
    """16,000 characters below a window of 100k tokens, 32,000 from there, 64,000 from 200k; at most 30 % of it,
    counted at four characters a token."""
    tier = 64_000 if window_tokens >= 200_000 else 32_000 if window_tokens >= 100_000 else 16_000
    return max(1, min(tier, int(window_tokens * WINDOW_SHARE * CHARS_PER_TOKEN)))


def truncate_result(text: str, limit_chars: int) -> str:
    """`text` whole, or cut so that with all marks it is no longer than `limit_chars`."""
    if len(text) <= limit_chars:
        return text
    closing = _closing(len(text) - limit_chars, len(text))
    budget = limit_chars - len(closing)
    if budget <= len(OMISSION):
        return text[:limit_chars]
    end = text[-END_CHARS:]
    matters = bool(_END_MATTERS.search(end)) or end.rstrip().endswith(("}", "]"))
    tail = min(int(budget * TAIL_SHARE), TAIL_CHARS_MAX) if matters else 0
    end = OMISSION + text[-tail:] if tail else ""
    head = budget - len(end)
    return text[:head] + end + _closing(len(text) - head - tail, len(text))


def shortened(text: str, limit_chars: int) -> str:
    """An earlier result, cut in the same way. The note in which it says itself how much it lacks stays at its end, and
    counts neither as its tail nor as what matters."""
    if len(text) <= limit_chars:
        return text
    match = _OWN_NOTE.search(text, max(0, len(text) - STUB_CHARS))
    if match is None or len(match[0]) >= limit_chars:
        return truncate_result(text, limit_chars)
    return truncate_result(text[: match.start()], limit_chars - len(match[0])) + match[0]


def _closing(cut: int, total: int) -> str:
    """The closing note, as wide for every `cut` of one text, so that the budget can be reckoned before the cut is known."""
    width = len(f"{total:,}")
    return f"\n\n[{cut:>{width},} characters were cut; narrow the arguments to see them]"
