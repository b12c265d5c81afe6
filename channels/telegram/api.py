"""Telegram's Bot API, as far as needed: calls, the delivery error of each refusal, and downloads.

The token is part of every URL, so it is inserted below the HTTP client and never in its log lines or exceptions. Retries
are the outbox's. Telegram has no error codes besides the HTTP status, so match the stable part of its lower-cased
description.
"""

import mimetypes
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx
import orjson
import structlog

from channels.channel import DeliveryError, Gone, RateLimited, Refused, TooLarge, Unreachable
from channels.download import download, request
from channels.message import UNKNOWN_TYPE, Attachment, File
from channels.telegram.config import TelegramAccount
from channels.transport import HttpResponse, Transport, client_class
from channels.wire import loads, mapping, number, text

HIDDEN = b"***"
FILES = "/file/"
RETRY_SECONDS_MAX = 86_400.0
_BAD_ENTITIES = ("can't parse entities", "text is too long")
"""Refusals of our markup."""
_NO_REPLY = ("message to be replied not found", "reply message not found", "replied message not found")
_NO_THREAD = ("message thread not found",)
_GONE = (
    "chat not found",
    "topic_closed",
    "topic_deleted",
    "user is deactivated",
    "bot was blocked",
    "bot was kicked",
    "group chat was deleted",
    "group chat was deactivated",
    "message to edit not found",
    "message can't be edited",
    "message_id_invalid",
    *_NO_THREAD,
    *_NO_REPLY,
)
_HINTS = {
    "not enough rights": "the bot lacks the right to write there; give it back, or remove the bot",
    "have no rights": "the bot lacks the right to write there; give it back, or remove the bot",
    "need administrator rights": "the bot must be an administrator there",
    "chat_write_forbidden": "the bot may not write there",
    "chat_restricted": "the bot may not write there",
    "chat_admin_required": "the bot must be an administrator there",
    "message text is empty": "nothing of the text would be seen",
    "message is too long": "the text is too long",
    "wrong file_id": "the file is no longer there",
    "reaction": "that emoji is no reaction here",
    "logged out": "the bot was logged out of this server for a move to another; is apiRoot right?",
}
_STATUS_HINTS = {
    401: "the bot token is wrong or was revoked; @BotFather knows the current one",
    404: "the token's form or apiRoot is wrong, or the server at apiRoot is too old",
    413: "the text is too large",
}
UPLOAD_SECONDS = 60.0
FILE_BYTES_MAX = 20 * 1024 * 1024
"""Telegram's limit on downloads."""

log = structlog.get_logger()


class TelegramApi:
    def __init__(self, account: TelegramAccount) -> None:
        self._account = account
        self._client: httpx.AsyncClient | None = None

    async def call(
        self, method: str, body: Mapping[str, Any] | None = None, *, timeout_seconds: float | None = None
    ) -> Any:
        """Return the `result`. Raises DeliveryError; `refusal_of` gives Telegram's answer."""
        sent = {"content": orjson.dumps(body or {}), "headers": {"content-type": "application/json"}}
        return await self._post(method, sent, timeout_seconds)

    async def upload(self, method: str, fields: Mapping[str, Any], files: Mapping[str, File]) -> Any:
        """Return the `result` of a call with files, each under its field name."""
        data = {key: value if isinstance(value, str) else orjson.dumps(value).decode() for key, value in fields.items()}
        parts = {name: (file.name, file.data, file.type) for name, file in files.items()}
        headers = {"content-type": f"multipart/form-data; boundary={secrets.token_hex(16)}"}
        return await self._post(method, {"data": data, "files": parts, "headers": headers}, UPLOAD_SECONDS)

    async def _post(self, method: str, sent: Mapping[str, Any], timeout_seconds: float | None) -> Any:
        seconds = timeout_seconds or self._account.timeout_seconds
        sending = request(self._http(), "POST", f"/{method}", seconds=seconds, platform="Telegram", **sent)
        return self._result(await sending, method)

    async def download(self, path: str, *, bytes_max: int) -> bytes:
        """Download the file at a path from `getFile`. Raises DeliveryError."""
        got = await download(self._http(), FILES + path, bytes_max=bytes_max)
        if got.status == 200:
            return got.data
        code = str(got.status)
        log.info("telegram_file_refused", status=got.status)
        if got.status == 429:
            raise RateLimited("Telegram asks to slow down", code=code)
        if got.status == 404 or got.status >= 500:  # paths expire after an hour; a retry gets a new one
            raise Unreachable(f"Telegram does not hand out the file (HTTP {code})", code=code)
        raise Refused(f"Telegram refuses the file (HTTP {code})", code=code)

    async def close(self) -> None:
        """Drop all connections, which may be dead; a later call opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            root, token = self._account.api_root.rstrip("/"), self._account.bot_token.get_secret_value().strip()
            self._client = client_class(httpx)(base_url=root, transport=_WithToken(token, root))
        return self._client

    def _result(self, response: HttpResponse | httpx.Response, method: str) -> Any:
        status, token = response.status_code, self._account.bot_token.get_secret_value().strip()
        try:
            answer = loads(response.content.replace(token.encode(), HIDDEN))  # some servers quote the URL
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or not isinstance(answer.get("ok"), bool):
            if status == 429:
                answer = {"ok": False}
            elif 400 <= status < 500:
                raise Refused(f"HTTP {status} without Telegram's words: is apiRoot right?", code=str(status))
            else:
                raise Unreachable(f"Telegram's answer cannot be read (HTTP {status})", code=str(status))
        if answer["ok"]:
            return answer.get("result")
        retry_after = response.headers.get("retry-after") or ""
        error = MethodError(answer, status, float(retry_after) if retry_after.isdecimal() else None)
        log.info("telegram_error", method=method, status=error.status, description=error.shown)
        raise error.meaning() from error


class _WithToken(Transport):
    """Insert the token into the path: `/bot<token>/sendMessage`, and `/file/bot<token>/photos/1.jpg`."""

    def __init__(self, token: str, root: str) -> None:
        super().__init__(httpx, root)
        self._token = token
        self._root = str(httpx.URL(root)).rstrip("/")

    def address(self, url: str) -> str:
        path = url.removeprefix(self._root)
        file = path.removeprefix(FILES) if path.startswith(FILES) else None
        path = f"/bot{self._token}{path}" if file is None else f"{FILES}bot{self._token}/{file}"
        return f"{self._root}{path}"


class MethodError(Exception):
    """Telegram answered with `ok: false`."""

    def __init__(self, answer: Mapping[str, Any], status: int, retry_after: float | None = None) -> None:
        parameters = mapping(answer, "parameters")
        self.status = number(answer, "error_code") or status
        self.description = text(answer, "description")
        self.migrated_to = number(parameters, "migrate_to_chat_id")
        self.is_conflict = self.status == 409
        self.bad_entities = self._has(_BAD_ENTITIES)
        self.no_reply = self._has(_NO_REPLY)
        self.no_thread = self._has(_NO_THREAD)
        self.not_modified = self._has(("message is not modified",))
        self.no_draft = self._has(("textdraft_peer_invalid",)) or self.status == 404
        self.not_there = self._has(("message to delete not found",))
        self.too_big = self._has(("file is too big",))
        seconds = number(parameters, "retry_after")
        self.retry_after = retry_after if seconds is None else float(seconds)
        super().__init__(f"Telegram answered {self.status}")

    @property
    def shown(self) -> str:
        """Return the text for the log. A complaint about entities quotes what was sent, so shorten it."""
        return "can't parse entities" if self.bad_entities else self.description[:200]

    def _has(self, parts: tuple[str, ...]) -> bool:
        return self.status == 400 and any(part in self.description.lower() for part in parts)

    def meaning(self) -> DeliveryError:
        """Return the delivery error of a failed send, with our own text: Telegram's may quote what was sent."""
        code, description = str(self.status), self.description.lower()
        if self.status == 429:
            wait = None if self.retry_after is None else min(max(self.retry_after, 0.0), RETRY_SECONDS_MAX)
            return RateLimited("Telegram asks to slow down", code=code, retry_after_seconds=wait)
        if self.status >= 500 or self.is_conflict:
            return Unreachable(f"Telegram is busy (HTTP {code})", code=code)
        if self.status == 403 or any(part in description for part in _GONE):
            return Gone(f"the chat, topic or person is out of reach ({code})", code=code)
        hint = _STATUS_HINTS.get(self.status) or next((_HINTS[part] for part in _HINTS if part in description), None)
        return Refused(f"Telegram refused it ({code}): {hint or 'the log line telegram_error says why'}", code=code)


def refusal_of(error: DeliveryError) -> MethodError | None:
    """Return Telegram's answer if it caused the error."""
    return error.__cause__ if isinstance(error.__cause__, MethodError) else None


async def fetch_file(api: TelegramApi, attachment: Attachment, bytes_max: int) -> File:
    path, size = await _file_path(api, attachment.key)
    if size is not None and size > bytes_max:
        raise TooLarge(bytes_max)
    data = await api.download(checked_path(path), bytes_max=bytes_max)
    if size is not None and len(data) != size:
        raise Unreachable("the file came incomplete")
    name = path.rpartition("/")[2]
    kind = attachment.type or mimetypes.guess_type(name)[0] or UNKNOWN_TYPE
    return File(name=attachment.name or name, type=kind, data=data)


async def _file_path(api: TelegramApi, file_id: str) -> tuple[str, int | None]:
    try:
        file = await api.call("getFile", {"file_id": file_id})
    except DeliveryError as error:
        if (refusal := refusal_of(error)) and refusal.too_big:
            raise TooLarge(FILE_BYTES_MAX) from error
        raise
    if not isinstance(file, dict) or not (path := text(file, "file_path")):
        raise Unreachable("Telegram does not say where the file is")
    return path, number(file, "file_size")


def checked_path(path: str) -> str:
    """Return the path, quoted for a URL. Raises Refused."""
    if path.startswith("/"):
        raise Refused("the Bot API server keeps files on its own disk: run it without --local")
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise Refused("Telegram names a file by what is no path")
    return quote(path, safe="/", errors="replace")
