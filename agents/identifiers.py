"""The exact identifiers of a text, and the audit that a summary kept them: paths, URLs, e-mail addresses, hashes and
numbers of four or more digits. Words may be retold; of these one wrong character makes them useless.

What is demanded is what a person wrote, and what an answer repeated of a tool's result. What only a tool's result has
can be looked up again.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence

from agents.messages import AssistantMessage, Message, ToolResultMessage, UserMessage, texts
from agents.prompt.inbound import ID_LINE
from agents.tokens import estimate

_PART = "A-Za-z0-9_.@+~%=\\-"
_EXTENSION = r"\.[A-Za-z0-9]{1,8}(?![A-Za-z0-9])"
_WIDE_NAME = rf"[^\x00-\x7f][^\s/\\:*?\"'`<>|()\[\]{{}},;、。“”‘’《》【】]{{0,64}}?{_EXTENSION}"
_KINDS = (
    re.compile(r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.-]{1,15}://[!#-&*-;=?-Z_a-z~]+"),
    re.compile(r"(?<![A-Za-z0-9_.+-])[A-Za-z0-9_.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}"),
    # From a root on; if its last name is in other letters, up to the end of the extension.
    re.compile(rf"(?<![{_PART}/\\])(?:[A-Za-z]:\\|\\\\|~?/|\.{{1,2}}/)[{_PART}/\\]*(?:{_WIDE_NAME})?"),
    # Three names or an extension: no and/or, no km/h.
    re.compile(rf"(?<![{_PART}/\\])(?:[{_PART}]+/){{2,64}}[{_PART}]*"),
    re.compile(rf"(?<![{_PART}/\\])[{_PART}]+/[{_PART}]*{_EXTENSION}"),
    re.compile(r"(?<![A-Za-z0-9])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![A-Za-z0-9])"),
    re.compile(
        r"(?<![A-Za-z0-9])(?=[A-Fa-f]{0,127}[0-9])(?=[0-9]{0,127}[A-Fa-f])(?:[0-9a-f]{7,128}|[0-9A-F]{7,128})(?![A-Za-z0-9])"
    ),
    re.compile("[0-9]{4,}"),
)
"""The patterns, in order: what one finds is gone for those after it, so the number in a path does not count."""
_THOUSANDS = re.compile(r"(?<=[0-9])[,，'’](?=[0-9]{3}(?![0-9]))")
_SENTENCE_END = ".,;:!?"
_ENVELOPE = re.compile(rf"{ID_LINE.pattern}[^\n:]*: ")


def identifiers(text: str) -> list[str]:
    """The identifiers of a text, each once, by kind."""
    rest, found = _plain(text), []
    for kind in _KINDS:
        found += [name for match in kind.findall(rest) if len(name := match.rstrip(_SENTENCE_END).rstrip("/\\")) > 1]
        rest = kind.sub(" ", rest)
    return list(dict.fromkeys(found))


def demanded(turns: Sequence[Sequence[Message]], earlier: str, tokens_max: int) -> list[str]:
    """The identifiers that a summary must hold of these turns and of the earlier summary that it replaces; the
    newest if all would take more than `tokens_max`."""
    messages = [message for turn in turns for message in turn]
    results = _plain(
        "\n".join(it for message in messages if isinstance(message, ToolResultMessage) for it in texts(message))
    )
    names = dict.fromkeys(identifiers(earlier))
    for message in messages:
        if isinstance(message, UserMessage):
            of_message = [name for text in texts(message) for name in identifiers(_ENVELOPE.sub("", text))]
        elif isinstance(message, AssistantMessage) and results:
            of_message = [name for name in identifiers(message.text) if name in results]
        else:
            continue
        for name in of_message:
            names.pop(name, None)
            names[name] = None
    return list(_newest(list(names), tokens_max))[::-1]


def missing(names: Sequence[str], summary: str) -> list[str]:
    """The names that the summary does not hold as they are, each as its own word, or a number."""
    plain = _plain(summary)
    kinds = {name: "0-9" if name.isdigit() else "A-Za-z0-9" for name in names}
    return [
        name for name, kind in kinds.items() if not re.search(rf"(?<![{kind}]){re.escape(name)}(?![{kind}])", plain)
    ]


def _newest(names: Sequence[str], tokens_max: float) -> Iterator[str]:
    for name in reversed(names):
        tokens_max -= estimate(name) + 1
        if tokens_max < 0:
            return
        yield name


def _plain(text: str) -> str:
    """Full-width characters as the plain ones, and numbers without the marks between thousands."""
    return _THOUSANDS.sub("", text if text.isascii() else unicodedata.normalize("NFKC", text))
