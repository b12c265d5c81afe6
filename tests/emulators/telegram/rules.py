"""What the Bot API refuses in a call, in its words: names, texts, buttons, reactions, commands, webhooks. Pure.

Wordings are the real server's unless a comment says that they are ours; clients may match on the real ones. Chats and
their rights are not here.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import orjson

from tests.emulators.telegram.entities import parse_html
from tests.emulators.telegram.formatted import Formatted, Unparsable, given_entities, trimmed, utf16_length, with_found

TEXT_MAX = 4096
CAPTION_MAX = 1024
RAW_BYTES_MAX = 32_768
CALLBACK_DATA_BYTES_MAX = 64
CALLBACK_ANSWER_MAX = 200
BUTTONS_MAX = 100
BUTTONS_PER_ROW_MAX = 8
COMMANDS_MAX = 100

_ACTIONS = """typing upload_photo record_video upload_video record_voice upload_voice upload_document choose_sticker
find_location record_video_note upload_video_note"""
_REACTIONS = """👍 👎 ❤ 🔥 🥰 👏 😁 🤔 🤯 😱 🤬 😢 🎉 🤩 🤮 💩 🙏 👌 🕊 🤡 🥱 🥴 😍 🐳 ❤‍🔥 🌚 🌭 💯 🤣 ⚡ ⚡️
🍌 🏆 💔 🤨 😐 🍓 🍾 💋 🖕 😈 😴 😭 🤓 👻 👨‍💻 👀 🎃 🙈 😇 😨 🤝 ✍ 🤗 🫡 🎅 🎄 ☃ 💅 🤪 🗿 🆒 💘 🙉 🦄 😘 💊 🙊 😎 👾
🤷‍♂ 🤷 🤷‍♀ 😡"""
_UPDATE_KINDS = """message edited_message channel_post edited_channel_post business_connection business_message
edited_business_message deleted_business_messages guest_message stopped_message_generation message_reaction
message_reaction_count inline_query chosen_inline_result callback_query shipping_query pre_checkout_query
purchased_paid_media poll poll_answer my_chat_member chat_member chat_join_request chat_boost removed_chat_boost
managed_bot subscription"""
ACTIONS = frozenset(_ACTIONS.split())
REACTIONS = frozenset(_REACTIONS.split())
UPDATE_KINDS = frozenset(_UPDATE_KINDS.split())
NOT_BY_DEFAULT = frozenset({"chat_member", "message_reaction", "message_reaction_count"})

_SEND = "chat_id message_thread_id disable_notification protect_content reply_parameters reply_markup"
_CAPTION = "caption parse_mode caption_entities"
_WEBHOOK = "url ip_address max_connections allowed_updates drop_pending_updates secret_token"
PARAMETERS = {
    method: frozenset(names.split())
    for method, names in {
        "getMe": "",
        "setWebhook": _WEBHOOK,
        "deleteWebhook": "drop_pending_updates",
        "getWebhookInfo": "",
        "getUpdates": "offset limit timeout allowed_updates",
        "sendMessage": f"{_SEND} text parse_mode entities link_preview_options",
        "sendPhoto": f"{_SEND} photo {_CAPTION}",
        "sendDocument": f"{_SEND} document {_CAPTION} disable_content_type_detection",
        "sendMessageDraft": "chat_id message_thread_id draft_id text parse_mode entities can_stop keep_on_stop",
        "editMessageText": "chat_id message_id text parse_mode entities link_preview_options reply_markup",
        "editMessageReplyMarkup": "chat_id message_id reply_markup",
        "deleteMessage": "chat_id message_id",
        "sendChatAction": "chat_id action message_thread_id",
        "setMessageReaction": "chat_id message_id reaction is_big",
        "setMyCommands": "commands scope language_code",
        "getMyCommands": "scope language_code",
        "getChat": "chat_id",
        "answerCallbackQuery": "callback_query_id text show_alert",
        "getFile": "file_id",
    }.items()
}
"""The names that a method takes here. Names of old versions and of features that no bot of ours uses are left out."""
PREVIEW = frozenset({"is_disabled", "url", "prefer_small_media", "prefer_large_media", "show_above_text"})
REPLY = frozenset({"message_id", "chat_id", "allow_sending_without_reply"})

_BUTTON_KINDS = {"url", "callback_data", "web_app", "login_url", "copy_text", "pay", "switch_inline_query"}
_BUTTON_KINDS |= {"switch_inline_query_current_chat", "switch_inline_query_chosen_chat", "callback_game"}
_BUTTON_NAMES = _BUTTON_KINDS | {"text", "style", "icon_custom_emoji_id", "disabled"}


class Refusal(Exception):
    """The call is answered with this."""

    def __init__(
        self,
        code: int,
        description: str,
        *,
        parameters: Mapping[str, int] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = dict(parameters or {})
        self.headers = dict(headers or {})


def bad_request(description: str) -> Refusal:
    return Refusal(400, f"Bad Request: {description}")


def too_many_requests(seconds: int) -> Refusal:
    description = f"Too Many Requests: retry after {seconds}"
    return Refusal(429, description, parameters={"retry_after": seconds}, headers={"Retry-After": str(seconds)})


def check_text(
    raw: str | None, parse_mode: str | None, entities: Sequence[Any] | None, *, may_be_empty: bool = False
) -> Formatted:
    """The text of a message, as people will see it."""
    formatted = _formatted(raw or "", parse_mode, entities)
    if not formatted.text and not may_be_empty:
        raise bad_request("message text is empty")
    # Telegram counts code points here and UTF-16 units there; the smaller number of characters holds for both.
    if formatted.length > TEXT_MAX:
        raise bad_request("message is too long")
    return formatted


def check_caption(raw: str | None, parse_mode: str | None, entities: Sequence[Any] | None) -> Formatted:
    formatted = _formatted(raw or "", parse_mode, entities)
    if formatted.length > CAPTION_MAX:
        raise bad_request("message caption is too long")
    return formatted


def _formatted(raw: str, parse_mode: str | None, entities: Sequence[Any] | None) -> Formatted:
    if len(raw.encode()) > RAW_BYTES_MAX:
        raise bad_request("text is too long")
    if parse_mode is not None and entities is not None:
        raise bad_request("parse_mode and entities exclude each other")  # our wording
    try:
        if entities is not None:
            return with_found(trimmed(given_entities(raw, entities)))
        match (parse_mode or "").lower():
            case "":
                return with_found(trimmed(Formatted(text=raw)))
            case "html":
                return with_found(trimmed(parse_html(raw)))
            case _:  # the real server knows Markdown too; what writes HTML only needs no parser for it here
                raise bad_request("unsupported parse_mode")
    except Unparsable as error:
        raise bad_request(f"can't parse entities: {error}") from None


def check_markup(markup: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The buttons under a message; other keyboards are taken as they are and are not part of the message."""
    if markup is None:
        return None
    if len(orjson.dumps(dict(markup))) > RAW_BYTES_MAX:
        raise bad_request("reply markup is too long")
    match markup:
        case {"remove_keyboard": True} | {"force_reply": True} | {"keyboard": [*_]}:
            return None
        case {"inline_keyboard": [*rows]} if len(markup) == 1:
            for row in rows:
                _check_row(row)
            if sum(map(len, rows)) > BUTTONS_MAX:
                raise bad_request("reply markup is too long")
            return {"inline_keyboard": rows} if any(rows) else None
        case _:
            raise bad_request("can't parse reply keyboard markup JSON object")


def _check_row(row: object) -> None:
    if not isinstance(row, list) or len(row) > BUTTONS_PER_ROW_MAX:
        raise bad_request("can't parse inline keyboard button: a row has at most 8 buttons")  # our wording
    for button in row:
        if not isinstance(button, dict) or not isinstance(button.get("text"), str) or not button["text"].strip():
            raise bad_request("can't parse inline keyboard button: a button needs a text")  # our wording
        if unknown := sorted(set(button) - _BUTTON_NAMES):
            raise bad_request(f'unknown parameter "inline_keyboard.{unknown[0]}"')
        kinds = _BUTTON_KINDS & set(button)
        if len(kinds) != 1:
            raise bad_request("text buttons are unallowed in the inline keyboard")
        data = button.get("callback_data", "x")
        if not isinstance(data, str) or not 1 <= len(data.encode()) <= CALLBACK_DATA_BYTES_MAX:
            raise bad_request("BUTTON_DATA_INVALID")
        if "url" in button and urlsplit(str(button["url"])).scheme not in ("http", "https", "tg"):
            raise bad_request("BUTTON_URL_INVALID")


def check_reaction(reaction: Sequence[Any]) -> str | None:
    """The emoji; None where the reaction is taken back."""
    match reaction:
        case []:
            return None
        case [{"type": "emoji", "emoji": str(emoji)}] if emoji in REACTIONS:
            return emoji
        case [{"type": "emoji"}]:
            raise bad_request("REACTION_INVALID")
        case [_]:
            raise bad_request("invalid reaction type specified")
        case _:
            raise bad_request("REACTIONS_TOO_MANY")


def check_action(action: str | None) -> str:
    if action not in ACTIONS:
        raise bad_request("wrong parameter action in request")
    return action


def check_commands(commands: Sequence[Any]) -> list[dict[str, str]]:
    if len(commands) > COMMANDS_MAX:
        raise bad_request("BOT_COMMANDS_TOO_MUCH")
    for command in commands:
        if not isinstance(command, dict) or not set(command) <= {"command", "description", "is_ephemeral"}:
            raise bad_request("can't parse list of bot commands: a command has a name and a description")  # our wording
        if not re.fullmatch(r"[a-z0-9_]{1,32}", str(command.get("command", ""))):
            raise bad_request("BOT_COMMAND_INVALID")
        if not 1 <= utf16_length(str(command.get("description", ""))) <= 256:
            raise bad_request("BOT_COMMAND_DESCRIPTION_INVALID")
    return [dict(command) for command in commands]


def check_callback_answer(text: str | None) -> str:
    if utf16_length(text or "") > CALLBACK_ANSWER_MAX:
        raise bad_request("MESSAGE_TOO_LONG")
    return text or ""


def check_webhook_url(url: str, *, local: bool) -> None:
    """A server of one's own takes any address; the public one only what it can reach and trust."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in ("http", "https"):
        raise bad_request("invalid webhook URL specified")
    if local:
        return
    if parts.scheme != "https":
        raise bad_request("bad webhook: An HTTPS URL must be provided for webhook")
    if (port or 443) not in (443, 80, 88, 8443):
        raise bad_request("bad webhook: Webhook can be set up only on ports 80, 88, 443 or 8443")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return
    if address.version == 6:
        raise bad_request("bad webhook: IPv6-only addresses are not allowed")
    if not address.is_global:
        raise bad_request(f"bad webhook: IP address {address} is reserved")


def check_secret(secret: str | None) -> str:
    if len(secret or "") > 256:
        raise bad_request("secret token is too long")
    if not re.fullmatch(r"[A-Za-z0-9_-]*", secret or ""):
        raise bad_request("secret token contains unallowed characters")
    return secret or ""


def check_update_kinds(kinds: Sequence[Any]) -> frozenset[str]:
    """Stricter than Telegram on purpose: it ignores kinds that it does not know."""
    if unknown := [kind for kind in kinds if kind not in UPDATE_KINDS]:
        raise bad_request(f'unknown kind of update "{unknown[0]}"')
    return frozenset(kinds) or UPDATE_KINDS - NOT_BY_DEFAULT
