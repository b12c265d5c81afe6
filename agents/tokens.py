"""Token counts, estimated offline in microseconds and corrected by the usage that providers report.

The rule imitates byte-pair tokenizers: a word with its space, three digits, a few punctuation marks. It has no
vocabulary and is not exact; `Calibration` learns a correction per model.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from agents.messages import Message, Opaque, Text, Thinking, ToolCall, Usage, UserMessage
from agents.providers.provider import System
from tools.tool import Image, NativeDocument, ToolSpec

IMAGE_TOKENS = 1_500
DOCUMENT_PAGE_TOKENS = 2_500
"""A page of a PDF that the model reads natively: its text and its picture."""
WRAPPING_TOKENS = 4
"""The tokens around each message and each tool."""

MODELS_MAX = 256
REQUEST_TOKENS_MIN = 200
"""The smallest request to learn from. Below it, fixed overhead outweighs the text."""
LATEST_WEIGHT = 0.3
RATIO_MIN, RATIO_MAX = 0.2, 5.0
OVERFLOW_STEP = 0.8
START_RATIOS = ((re.compile(r"claude-(?:opus-4-[7-9]|(?:opus|sonnet|haiku|fable|mythos)-(?:[5-9]|\d\d))(?!\d)"), 1.3),)
"""Claude since Opus 4.7 and the 5 families counts about 30 % more than older models."""

_PIECE = re.compile(
    r" [A-Z]?[a-zß-ÿ]{1,11}"  # a word that its space made part of: nearly always one token
    r"|['’.]?[A-Z]?[a-zß-ÿ]{1,8}"  # a word in an identifier, a path, a key: cut sooner
    r"| ?[A-Z]{1,4}(?![a-z])"
    r"|[0-9]{1,3}"
    r"| ?(?:={4,64}|-{4,64}|\.{4,64}|_{2,64}|[!-/:-@\[-^`{-~]{1,3})\n{0,8}"
    r"|[\r\n]{1,8}| {2,80}|\t{1,16}| (?=[0-9])|[\x01-\x08\x0e-\x1f]"
)
_HAN = re.compile(r"[⺀-⿟㐀-䶿一-鿿豈-﫿\U00020000-\U0003ffff]+")
_RARE_HAN = re.compile(
    r"[灭-爫芀-衁酊-釋"  # fire, plants and insects, wine: the concrete nouns
    r"糺-纞訂-讟貝-贜車-轥釓-钀長-闥頁-顴飡-饢馬-驫魚-龘㐀-䶿\U00020000-\U0003ffff]"  # radicals that are written shorter now
)
_MARKS = re.compile(r"[–-‧\u3000-〟！-／：-＠［-｠]{1,4}")
_HAN_WEIGHT, _RARE_HAN_EXTRA, _MARKS_WEIGHT = 0.74, 1.0, 1.1
_SCRIPTS = (
    (re.compile(r"[ß-ɏḀ-ỿ]+"), 0.5),  # on top of their word
    (re.compile(r"[Ͱ-Ͽ]+"), 0.45),  # Greek
    (re.compile(r"[Ѐ-ԯ]+"), 0.33),  # Cyrillic
    (re.compile(r"[֐-ࣿ]+"), 0.4),  # Hebrew, Arabic
    (re.compile(r"[ऀ-๿]+"), 0.45),  # the scripts of India, Thai
    (re.compile(r"[぀-ヿ]+"), 0.7),
    (re.compile(r"[가-힣]+"), 0.7),
    (re.compile(r"[─-▟]+"), 0.9),  # boxes and bars
)
_SYMBOL_WEIGHT = 1.6


def request_tokens(system: System, tools: Sequence[ToolSpec], messages: Sequence[Message]) -> int:
    """Estimate a whole request: prompt, tool descriptions and conversation."""
    total = _lasting(system.stable) + estimate(system.volatile) + sum(map(_of_tool, tools))
    return int(total) + sum(tokens(message) for message in messages)


@lru_cache(maxsize=512)
def _of_tool(tool: ToolSpec) -> float:
    schema = json.dumps(tool.input_schema, ensure_ascii=False, separators=(",", ":"))
    return estimate(tool.name) + estimate(tool.description) + estimate(schema) + WRAPPING_TOKENS


def tokens(message: Message) -> int:
    """Estimate one message with its metadata. A picture counts 1,500 and a document by its pages, not their base64."""
    count = IMAGE_TOKENS * sum(isinstance(part, Image) for part in message.content)
    count += DOCUMENT_PAGE_TOKENS * sum(it.pages for it in message.content if isinstance(it, NativeDocument))
    return int(sum(map(estimate, texts_of(message)))) + count + WRAPPING_TOKENS


def texts_of(message: Message) -> Iterator[str]:
    """Yield all texts of a message, metadata included."""
    if isinstance(message, UserMessage):
        yield message.metadata
    for part in message.content:
        match part:
            case Text(text=text) | Thinking(text=text) | ToolCall(arguments_raw=text):
                yield text
            case Opaque():
                yield str(part.wire.data)


class Calibration:
    """The moving ratio real ÷ estimated per model, learned from reported usage."""

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}
        self._ratios: dict[str, float] = {}
        """Ordered by the latest update; the oldest one is evicted first."""

    def learn(self, model: str, estimated: int, usage: Usage) -> None:
        """Learn from an uncorrected estimate and the provider's count.

        Ratios outside the bounds are ignored: they mean a broken count (such as a server that omits cached tokens),
        and clamping them would pull later estimates to the bound.
        """
        real = usage.input + usage.cache_read + usage.cache_write
        if usage.estimated or min(real, estimated) < REQUEST_TOKENS_MIN:
            return
        latest = real / estimated
        if not RATIO_MIN <= latest <= RATIO_MAX:
            return
        before = self.ratio(model)
        self._ratios.pop(model, None)
        if len(self._ratios) >= MODELS_MAX:
            del self._ratios[next(iter(self._ratios))]
        self._ratios[model] = before + LATEST_WEIGHT * (latest - before)

    def ratio(self, model: str) -> float:
        if (known := self._ratios.get(model)) is not None:
            return known
        return next((ratio for name, ratio in START_RATIOS if name.match(model.rpartition("/")[2])), 1.0)

    def overflowed(self, model: str, estimated: int) -> None:
        """Keep later requests below this estimate: the model refused it as too long and accepted a smaller one."""
        if model in self._limits or len(self._limits) < MODELS_MAX:
            self._limits[model] = min(below(estimated), self._limits.get(model, estimated))

    def room(self, model: str, real: int) -> int:
        """Return how many estimated tokens fit into `real` tokens of the model."""
        fitting = int(real / self.ratio(model))
        return min(fitting, self._limits.get(model, fitting))

    def corrected(self, model: str, estimated: int) -> int:
        return round(estimated * self.ratio(model))


def below(refused: int) -> int:
    """Return the estimate to try after a request of this size was refused as too long."""
    return int(refused * OVERFLOW_STEP)


def estimate(text: str) -> float:
    """Estimate the tokens of a text, within about 15 % of current tokenizers for English and Chinese prose."""
    if text.isascii():
        return len(_PIECE.findall(text))
    rest, runs = _HAN.subn("\0", text)
    total = _HAN_WEIGHT * (len(text) - len(rest) + runs)
    if runs:
        total += _RARE_HAN_EXTRA * len(_RARE_HAN.findall(text))
    rest, marks = _MARKS.subn("\0", rest)
    total += _MARKS_WEIGHT * marks + len(_PIECE.findall(rest))
    return total if rest.isascii() else total + _foreign(rest)


def _lasting(text: str) -> float:
    # All requests share this text. It is cached by digest: a prompt may be long and hold personal data.
    digest = hashlib.sha256(text.encode(errors="replace")).digest()
    if (tokens_of := _estimates.get(digest)) is None:
        if len(_estimates) >= ESTIMATES_MAX:
            _estimates.clear()
        tokens_of = _estimates[digest] = estimate(text)
    return tokens_of


ESTIMATES_MAX = 512
_estimates: dict[bytes, float] = {}


def _foreign(text: str) -> float:
    total = 0.0  # letters by script; everything else, such as emoji, as symbols
    others = len(text.encode("ascii", "replace")) - len(text.encode("ascii", "ignore"))
    for script, weight in _SCRIPTS:
        letters = sum(map(len, script.findall(text)))
        total += weight * letters
        others -= letters
    return total + _SYMBOL_WEIGHT * others
