"""What Telegram's refusals mean for a send: one of four delivery errors, or a reason to try in another way.

Telegram has a status and a sentence, no codes: the sentence is matched in lower case and by its part that has been the
same for years. What we do not know is refused: repeating what nobody understands helps nobody, and the log names it.
"""

from collections.abc import Mapping
from typing import Any

from channels.channel import DeliveryError, Gone, RateLimited, Refused, Unreachable
from channels.telegram.wire import mapping, number, text

RETRY_SECONDS_MAX = 86_400.0
_BAD_ENTITIES = ("can't parse entities", "text is too long")
"""It is our HTML that was not taken: its tags, or its length of more than 32 KiB with them."""
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
    "logged out": "the bot was logged out of this server for a move to another; is apiRoot right?",
}
_STATUS_HINTS = {
    401: "the bot token is wrong or was revoked; @BotFather knows the current one",
    404: "the token's form or apiRoot is wrong, or the server at apiRoot is too old",
    413: "the text is too large",
}


class MethodError(Exception):
    """Telegram answered with `ok: false`. `error` is what it means for a send."""

    def __init__(self, answer: Mapping[str, Any], status: int, retry_after: float | None = None) -> None:
        parameters = mapping(answer, "parameters")
        self.status = number(answer, "error_code") or status
        self.description = text(answer, "description")
        self.migrated_to = number(parameters, "migrate_to_chat_id")
        seconds = number(parameters, "retry_after")
        self.error = self._error(retry_after if seconds is None else float(seconds))
        super().__init__(str(self.error))

    @property
    def is_conflict(self) -> bool:
        return self.status == 409

    @property
    def bad_entities(self) -> bool:
        return self._says(_BAD_ENTITIES)

    @property
    def no_reply(self) -> bool:
        return self._says(_NO_REPLY)

    @property
    def no_thread(self) -> bool:
        return self._says(_NO_THREAD)

    @property
    def too_big(self) -> bool:
        return self._says(("file is too big",))

    @property
    def shown(self) -> str:
        """For the log. A complaint about entities quotes what was sent, so not that one."""
        return "can't parse entities" if self.bad_entities else self.description[:200]

    def _says(self, parts: tuple[str, ...]) -> bool:
        return self.status == 400 and any(part in self.description.lower() for part in parts)

    def _error(self, retry_after: float | None) -> DeliveryError:
        """Its text is ours: Telegram's may quote what was sent."""
        code, description = str(self.status), self.description.lower()
        if self.status == 429:
            wait = None if retry_after is None else min(max(retry_after, 0.0), RETRY_SECONDS_MAX)
            return RateLimited("Telegram asks to slow down", code=code, retry_after_seconds=wait)
        if self.status >= 500 or self.is_conflict:
            return Unreachable(f"Telegram is busy (HTTP {code})", code=code)
        if self.status == 403 or any(part in description for part in _GONE):
            return Gone(f"the chat, topic or person is out of reach ({code})", code=code)
        hint = _STATUS_HINTS.get(self.status) or next((_HINTS[part] for part in _HINTS if part in description), None)
        return Refused(f"Telegram refused it ({code}): {hint or 'the log line telegram_error says why'}", code=code)
