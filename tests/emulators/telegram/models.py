"""The calls of the Bot API as closed models: the names a method takes, their types, and Telegram's limits on them.

Stricter than Telegram on purpose: it ignores what it does not know, and so a misspelt name goes unseen. Names of old
versions and of features that no bot of ours uses are left out. What a call means is not here.
"""

from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar
from urllib.parse import urlsplit

import orjson
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, StrictInt, StrictStr, model_validator

from tests.emulators.telegram.formatted import utf16_length
from tests.emulators.telegram.rules import UPDATE_KINDS

_ACTIONS = """typing upload_photo record_video upload_video record_voice upload_voice upload_document choose_sticker
find_location record_video_note upload_video_note"""
_REACTIONS = """👍 👎 ❤ 🔥 🥰 👏 😁 🤔 🤯 😱 🤬 😢 🎉 🤩 🤮 💩 🙏 👌 🕊 🤡 🥱 🥴 😍 🐳 ❤‍🔥 🌚 🌭 💯 🤣 ⚡ ⚡️
🍌 🏆 💔 🤨 😐 🍓 🍾 💋 🖕 😈 😴 😭 🤓 👻 👨‍💻 👀 🎃 🙈 😇 😨 🤝 ✍ 🤗 🫡 🎅 🎄 ☃ 💅 🤪 🗿 🆒 💘 🙉 🦄 😘 💊 🙊 😎 👾
🤷‍♂ 🤷 🤷‍♀ 😡"""
_LINKS = ("http", "https", "tg")

T = TypeVar("T")


def _loaded(value: object) -> object:
    """A form carries an object or a list as JSON text."""
    return orjson.loads(value) if isinstance(value, str) else value


def _flag(value: object) -> object:
    return value == "true" if value in ("true", "false") else value


def _number(value: object) -> object:
    return int(value) if isinstance(value, str) and value.removeprefix("-").isdecimal() else value


def _one_of(known: frozenset[str]) -> AfterValidator:
    def check(value: str) -> str:
        if value not in known:
            raise ValueError(f"{value!r} is not known")
        return value

    return AfterValidator(check)


def _measures(most: int, *, unit: Any = utf16_length) -> AfterValidator:
    def check(value: str) -> str:
        if not 1 <= unit(value) <= most:
            raise ValueError(f"longer than {most}, or empty")
        return value

    return AfterValidator(check)


Structure: TypeAlias = Annotated[T, BeforeValidator(_loaded)]
Flag = Annotated[bool, Field(strict=True), BeforeValidator(_flag)]
Number = Annotated[StrictInt, BeforeValidator(_number)]
ChatId: TypeAlias = StrictInt | StrictStr


class CallShape(BaseModel, extra="forbid", strict=True, frozen=True):
    pass


class Entity(CallShape):
    """`type` and its facts; those that Telegram finds by itself are taken and left out."""

    type: str
    offset: Annotated[int, Field(ge=0)]
    length: Annotated[int, Field(ge=0)]
    url: str | None = None
    user: dict[str, Any] | None = None
    language: str | None = None
    custom_emoji_id: str | None = None
    unix_time: int | None = None
    date_time_format: str | None = None


class LinkPreview(CallShape):
    is_disabled: bool = False
    url: str = ""
    prefer_small_media: bool = False
    prefer_large_media: bool = False
    show_above_text: bool = False


class ReplyParameters(CallShape):
    """Replies to other chats are not here, and our bot needs none."""

    message_id: int
    chat_id: ChatId | None = None
    allow_sending_without_reply: bool = False


class Button(CallShape):
    """Exactly one of its kinds."""

    text: Annotated[str, Field(pattern=r"\S")]
    style: str | None = None
    icon_custom_emoji_id: str | None = None
    disabled: bool | None = None
    url: str | None = None
    callback_data: Annotated[str, _measures(64, unit=lambda data: len(data.encode()))] | None = None
    web_app: dict[str, Any] | None = None
    login_url: dict[str, Any] | None = None
    copy_text: dict[str, Any] | None = None
    pay: bool | None = None
    switch_inline_query: str | None = None
    switch_inline_query_current_chat: str | None = None
    switch_inline_query_chosen_chat: dict[str, Any] | None = None
    callback_game: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        kinds = self.model_fields_set - {"text", "style", "icon_custom_emoji_id", "disabled"}
        if len(kinds) != 1 or (self.url is not None and urlsplit(self.url).scheme not in _LINKS):
            raise ValueError("text buttons are unallowed in the inline keyboard")
        return self


class InlineKeyboard(CallShape):
    inline_keyboard: list[Annotated[list[Button], Field(max_length=8)]]

    @model_validator(mode="after")
    def _has_no_more_than_a_hundred(self) -> Self:
        if sum(map(len, self.inline_keyboard)) > 100:
            raise ValueError("reply markup is too long")
        return self


class OtherKeyboard(CallShape, extra="allow"):
    """Taken as it is, and no part of the message."""

    remove_keyboard: Literal[True] | None = None
    force_reply: Literal[True] | None = None
    keyboard: list[Any] | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if len(self.model_fields_set - set(self.model_extra or ())) != 1:
            raise ValueError("can't parse reply keyboard markup JSON object")
        return self


Markup: TypeAlias = Structure[InlineKeyboard | OtherKeyboard | None]


class Call(CallShape):
    """The parameters of a method that takes none."""


class InChat(Call):
    chat_id: ChatId = ""


class OfMember(InChat):
    user_id: Number


class AtMessage(InChat):
    message_id: Number


class _Send(InChat):
    message_thread_id: Number | None = None
    disable_notification: Flag = False
    protect_content: Flag = False
    reply_parameters: Structure[ReplyParameters | None] = None
    reply_markup: Markup = None


class _Text(Call):
    text: str
    entities: Structure[list[Entity]] = []


class SendMessage(_Send, _Text):
    link_preview_options: Structure[LinkPreview | None] = None


class PollOption(CallShape):
    text: Annotated[str, _measures(100)]


class SendPoll(_Send):
    question: Annotated[str, _measures(300)]
    options: Structure[Annotated[list[PollOption], Field(min_length=2, max_length=10)]]
    is_anonymous: Flag = True
    allows_multiple_answers: Flag = False


class SendFile(_Send):
    """The file is uploaded under its kind, or named there."""

    photo: str | None = None
    document: str | None = None
    voice: str | None = None
    caption: str = ""
    caption_entities: Structure[list[Entity]] = []
    disable_content_type_detection: Flag = False


class InputMedia(BaseModel, extra="forbid", strict=True, frozen=True):
    type: Literal["photo", "document"]
    media: Annotated[str, Field(pattern=r"^attach://.+")]
    caption: str = ""
    caption_entities: list[Entity] = []


class SendMediaGroup(_Send):
    """All of one type: documents go only among themselves."""

    media: Structure[Annotated[list[InputMedia], Field(min_length=2, max_length=10)]]
    reply_markup: None = None


class SendMessageDraft(InChat, _Text):
    message_thread_id: Number | None = None
    draft_id: Annotated[Number, AfterValidator(lambda number: number or int("no draft has the id 0"))]
    can_stop: Flag = False
    keep_on_stop: Flag = False


class EditMessageText(AtMessage, _Text):
    link_preview_options: Structure[LinkPreview | None] = None
    reply_markup: Markup = None


class EditMessageReplyMarkup(AtMessage):
    reply_markup: Markup = None


class SendChatAction(InChat):
    action: Annotated[str, _one_of(frozenset(_ACTIONS.split()))]
    message_thread_id: Number | None = None


class EmojiReaction(CallShape):
    type: Literal["emoji"]
    emoji: Annotated[str, _one_of(frozenset(_REACTIONS.split()))]


class SetMessageReaction(AtMessage):
    reaction: Structure[Annotated[list[EmojiReaction], Field(max_length=1)]] = []
    is_big: Flag = False


class BotCommand(CallShape):
    command: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,32}$")]
    description: Annotated[str, _measures(256)]


_SCOPES = "default all_private_chats all_group_chats all_chat_administrators chat chat_administrators chat_member"


class Scope(CallShape):
    type: Annotated[str, _one_of(frozenset(_SCOPES.split()))] = "default"
    chat_id: ChatId | None = None
    user_id: int | None = None


class GetMyCommands(Call):
    scope: Structure[Scope] = Scope()
    language_code: str = ""


class SetMyCommands(GetMyCommands):
    commands: Structure[Annotated[list[BotCommand], Field(max_length=100)]]


class AnswerCallbackQuery(Call):
    callback_query_id: str
    text: Annotated[str, Field(max_length=200)] = ""
    show_alert: Flag = False


class GetFile(Call):
    file_id: str


class DeleteWebhook(Call):
    drop_pending_updates: Flag = False


_Kinds: TypeAlias = Structure[list[Annotated[str, _one_of(UPDATE_KINDS)]] | None]


class SetWebhook(DeleteWebhook):
    url: str = ""
    ip_address: str = ""
    max_connections: Annotated[Number, Field(ge=1, le=100)] = 40
    allowed_updates: _Kinds = None
    secret_token: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{0,256}$")] = ""


class GetUpdates(Call):
    offset: Number = 0
    limit: Number = 100
    timeout: Number = 0
    allowed_updates: _Kinds = None
