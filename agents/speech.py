"""Speak an answer by a server with OpenAI's `POST /audio/speech`.

The text is always sent first; speech follows as a voice message and is best effort. Code, tables, pictures and addresses
are not read aloud. Source: OpenAI's API reference, "Create speech".
"""

import asyncio
import re
from functools import cache
from typing import TYPE_CHECKING, Annotated, Literal

import httpx
import orjson
import structlog
from pydantic import Field

from agents.transcription import sound
from channels.message import File
from channels.section import Section
from channels.transport import Transport, client_class

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

AUDIO_BYTES_MAX = 16 * 1024 * 1024
ATTEMPTS = 2
_SENTENCE_END = re.compile(r"[.!?…](?=\s)|[。！？]|\n")
_ADDRESS = re.compile(r"https?://\S+|www\.\S+")

log = structlog.get_logger()


class SpeechConfig(Section):
    """Spoken answers. An agent's `speech` overrides these keys one by one."""

    model: str = ""
    """`provider/model` of a server with OpenAI's `/audio/speech`, such as `openai/gpt-4o-mini-tts`."""
    voice: Annotated[str, Field(pattern=r"^\S{1,64}$")] = "alloy"
    """The server's name for the voice."""
    mode: Literal["off", "mirror", "always"] = "off"
    """`mirror`: answer a voice message with a voice message after the text; `always`: speak every answer; `off`: none."""
    max_chars: Annotated[int, Field(ge=1, le=4096)] = 1500
    """Characters of an answer that are spoken; a longer one ends at the last whole sentence."""
    price_per_million_chars: Annotated[float, Field(ge=0)] = 0
    """The price of a million spoken characters, in `currency`; it counts towards `/usage` and budgets."""
    timeout_seconds: Annotated[float, Field(gt=0, le=120)] = 30
    """The timeout per answer. The next message of the chat waits for it."""

    def over(self, base: "SpeechConfig") -> "SpeechConfig":
        """Return `base` with the keys that are set here."""
        return base.but(**{name: getattr(self, name) for name in self.model_fields_set})

    def cost(self, text: str) -> float:
        return len(text) * self.price_per_million_chars / 1_000_000


def speakable(markdown: str, chars_max: int) -> str:
    """Return the part of an answer that is read aloud: its prose, without code blocks, tables, pictures and addresses."""
    lines: list[str] = []
    in_table = False
    for token in _parser().parse(markdown):
        if token.type in ("table_open", "table_close"):
            in_table = token.type == "table_open"
        if token.type != "inline" or in_table:
            continue
        words = [
            " " if child.type in ("softbreak", "hardbreak") else child.content
            for child in token.children or ()
            if child.type in ("text", "code_inline", "softbreak", "hardbreak")
        ]
        line = " ".join(_ADDRESS.sub("", "".join(words)).split())
        if any(map(str.isalnum, line)):
            lines.append(line)
    text = "\n".join(lines)
    if len(text) <= chars_max:
        return text
    ends = [match.end() for match in _SENTENCE_END.finditer(text, 0, chars_max + 1) if match.end() <= chars_max]
    return text[: ends[-1] if ends else chars_max].rstrip()


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable("table")


async def synthesize(config: SpeechConfig, url: str, key: str, text: str) -> File | None:
    """Return the text as an Opus file in an Ogg container, from the server whose `/audio/speech` is `url`; None if that
    failed, with one line in the log."""
    model = config.model.partition("/")[2]
    body = {"model": model, "voice": config.voice, "input": text, "response_format": "opus"}
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    try:
        async with (
            asyncio.timeout(config.timeout_seconds),
            client_class(httpx)(transport=Transport(httpx, url), timeout=config.timeout_seconds) as client,
        ):
            for attempt in range(ATTEMPTS):
                answer = await client.post(url, content=orjson.dumps(body), headers=headers)
                if attempt or (answer.status_code < 500 and answer.status_code != 429):
                    break
    except (httpx.HTTPError, TimeoutError) as error:
        log.warning("answer_not_spoken", error=type(error).__name__)
        return None
    data = answer.content
    if answer.status_code != 200 or sound(data) != "ogg" or len(data) > AUDIO_BYTES_MAX:
        log.warning("answer_not_spoken", status=answer.status_code, bytes=len(data))
        return None
    return File(name="answer.ogg", type="audio/ogg", data=data)
