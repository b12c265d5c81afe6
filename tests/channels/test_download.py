"""Downloads from a platform that misbehaves: too much, too little, too slow, packed, elsewhere, or not at all."""

import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any, TypeAlias

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.channel import DeliveryError, RateLimited, Refused, TooLarge, Unreachable
from channels.download import download
from channels.message import Attachment
from channels.telegram.api import checked_path
from channels.telegram.channel import TelegramChannel
from tests.channels.telegram_bot import bot, connected, refusal
from tests.channels.telegram_samples import BOT_TOKEN
from tests.loopback import serve_on_loopback

Answer: TypeAlias = Callable[[Any, Any], Awaitable[None]]
PHOTO = Attachment(kind="image", key="AgAD-1")


def answer(*pieces: bytes, status: int = 200, headers: dict[str, str] | None = None, ends: bool = True) -> Answer:
    """These pieces; where it does not `end`, nothing more comes for as long as anybody waits."""

    async def play(receive: Any, send: Any) -> None:
        line_pairs = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        await send({"type": "http.response.start", "status": status, "headers": line_pairs})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        while not ends and (await receive())["type"] != "http.disconnect":
            pass
        await send({"type": "http.response.body", "body": b""})

    return play


@asynccontextmanager
async def server(*answers: Answer) -> AsyncIterator[tuple[httpx.AsyncClient, list[str]]]:
    """A client of a platform that answers so, one after the other, and what it was asked for."""
    paths: list[str] = []
    waiting = list(answers)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        paths.append(scope["path"])
        await receive()
        await waiting.pop(0)(receive, send)

    async with (
        serve_on_loopback(app) as url,
        httpx.AsyncClient(base_url=url, trust_env=False, follow_redirects=True) as client,
    ):
        yield client, paths


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (answer(b"abcd"), TooLarge),
        (answer(b"ab", b"cd", ends=False), TooLarge),
        (answer(headers={"content-length": "4"}, ends=False), TooLarge),
        (answer(b"abc", headers={"content-length": "99"}), TooLarge),
        (answer(b"a", headers={"content-length": "3"}), Unreachable),
        (answer(gzip.compress(bytes(10_000_000)), headers={"content-encoding": "gzip"}), Unreachable),
        (answer(b"a", ends=False), Unreachable),
    ],
    ids=["a byte too many", "endless", "said to be larger", "said to be far larger", "cut", "packed", "dripping"],
)
async def test_download_of_another_size_is_an_error(sent: Answer, error: type[DeliveryError]) -> None:
    async with server(sent) as (client, _):
        with pytest.raises(error):
            await download(client, "/file", bytes_max=3, seconds=0.5 if error is Unreachable else 20.0)


async def test_download_follows_no_redirect_and_reads_refusals_shortly() -> None:
    whole = answer(b"ab", b"c", headers={"content-type": "image/png"})
    away = answer(status=302, headers={"location": "/elsewhere"})
    async with server(whole, away, answer(bytes(70_000), status=404, ends=False)) as (client, paths):
        got = await download(client, "/file/a%2Fb", bytes_max=3)
        assert (got.status, got.data, got.headers["content-type"]) == (200, b"abc", "image/png")
        assert (await download(client, "/file", bytes_max=3)).status == 302
        assert len((await download(client, "/refused", bytes_max=3)).data) == 65_536
        assert paths == ["/file/a/b", "/file", "/refused"]


@pytest.mark.parametrize(
    ("path", "quoted"),
    [
        ("photos/file_7.jpg", "photos/file_7.jpg"),
        ("documents/报告 #1?.pdf", "documents/%E6%8A%A5%E5%91%8A%20%231%3F.pdf"),
        ("a\\..\\b", "a%5C..%5Cb"),
        ("%2e%2e/a", "%252e%252e/a"),
        *((path, None) for path in ("../getMe", "photos/../../secret", "photos//a", "photos/./a")),
        *((path, None) for path in ("/var/lib/telegram/file_7.jpg", "//other.example.com/a")),
    ],
)
def test_download_path_stays_beneath_the_bots_files(path: str, quoted: str | None) -> None:
    if quoted is None:
        with pytest.raises(Refused):
            checked_path(path)
    else:
        assert checked_path(path) == quoted


@given(st.text(max_size=40))
def test_download_path_cannot_escape(path: str) -> None:
    try:
        quoted = checked_path(path)
    except Refused:
        return
    url = httpx.URL(f"https://api.telegram.org/file/botTOKEN/{quoted}")
    assert url.host == "api.telegram.org"
    assert url.raw_path.startswith(b"/file/botTOKEN/")
    assert b"?" not in url.raw_path


@pytest.mark.parametrize(
    ("found", "error", "words"),
    [
        (refusal(400, "Bad Request: file is too big"), TooLarge, "larger than 20,971,520 bytes"),
        (refusal(400, "Bad Request: wrong file_id or the file is temporarily unavailable"), Refused, "no longer there"),
        (refusal(429, "Too Many Requests: retry after 7", retry_after=7), RateLimited, "slow down"),
        ({"file_id": "AgAD-1", "file_size": 1_001, "file_path": "photos/1.jpg"}, TooLarge, "larger than 1,000 bytes"),
        ({"file_id": "AgAD-1", "file_path": "/srv/telegram/1.jpg"}, Refused, "--local"),
    ],
)
async def test_download_limit_is_checked_before_the_bytes(found: Any, error: type[DeliveryError], words: str) -> None:
    async with connected() as (telegram, channel):
        telegram.answers["getFile"] = [found]
        with pytest.raises(error, match=words):
            await channel.fetch(PHOTO, bytes_max=1_000)
        assert telegram.of("getFile") == [{"file_id": "AgAD-1"}]
        assert [path for path in telegram.paths if path.startswith("/file")] == []


@asynccontextmanager
async def telegram_files(*answers: Answer, prefix: str = "") -> AsyncIterator[tuple[TelegramChannel, list[str]]]:
    """A bot whose Telegram knows one photo of three bytes, and hands it out so."""
    found = answer(b'{"ok":true,"result":{"file_id":"AgAD-1","file_size":3,"file_path":"photos/1.jpg"}}')
    async with server(*chain.from_iterable((found, sent) for sent in answers)) as (client, paths):
        channel = bot(apiRoot=str(client.base_url).rstrip("/") + prefix)
        try:
            yield channel, paths
        finally:
            await channel.close()


@pytest.mark.parametrize("prefix", ["", "/telegram", "/file"])
async def test_download_of_a_photo_is_from_the_bots_address(prefix: str) -> None:
    async with telegram_files(answer(b"abc"), prefix=prefix) as (channel, paths):
        file = await channel.fetch(PHOTO, bytes_max=1_000)
        assert (file.name, file.type, file.data) == ("1.jpg", "image/jpeg", b"abc")
        assert paths == [f"{prefix}/bot{BOT_TOKEN}/getFile", f"{prefix}/file/bot{BOT_TOKEN}/photos/1.jpg"]


@pytest.mark.parametrize(
    "first",
    [answer(b"ab"), answer(b"a", headers={"content-length": "3"}), answer(status=404), answer(status=502)],
    ids=["short", "cut", "path expired", "server down"],
)
async def test_download_cut_short_is_retried_from_its_path(first: Answer) -> None:
    async with telegram_files(first, answer(b"abc")) as (channel, paths):
        assert (await channel.fetch(PHOTO, bytes_max=1_000)).data == b"abc"
        assert [path.rpartition("/")[2] for path in paths] == ["getFile", "1.jpg"] * 2


@pytest.mark.parametrize(
    ("sent", "error", "attempts"),
    [
        (answer(status=302, headers={"location": "https://example.com/"}), Refused, 1),
        (answer(status=401), Refused, 1),
        (answer(status=429), RateLimited, 1),
        (answer(status=502), Unreachable, 2),
    ],
)
async def test_download_retry_once_and_errors_hold_no_token(
    sent: Answer, error: type[DeliveryError], attempts: int
) -> None:
    async with telegram_files(*[sent] * 3) as (channel, paths):
        with pytest.raises(error) as raised:
            await channel.fetch(PHOTO, bytes_max=1_000)
        assert len(paths) == 2 * attempts
        seen: BaseException | None = raised.value
        while seen is not None:
            assert BOT_TOKEN not in f"{seen!r} {seen} {vars(seen)}"
            seen = seen.__cause__ or seen.__context__
