"""What Feishu takes of a message that is sent, as closed models: members, contents, sizes.

Source: the open platform's pages on sending and replying, and its table of limits. Of a post's nodes, those that our app
sends are here.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError

TEXT_BYTES_MAX = 150 * 1024
POST_BYTES_MAX = 30 * 1024

T = TypeVar("T")


class Refusal(Exception):
    """The request is answered with this code."""

    def __init__(self, code: int, message: str, *, status: int = 400, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        self.headers = headers or {}


Filled = Annotated[str, Field(min_length=1)]
Words = Annotated[str, Field(pattern=r"\S")]


class FeishuShape(BaseModel, extra="forbid", strict=True, frozen=True):
    pass


class NewReply(FeishuShape):
    msg_type: Literal["text", "post", "interactive", "image", "file", "audio"]
    content: Filled
    """JSON: a `TextContent`, a `Post`, a `Card` or the key of an upload."""
    uuid: Annotated[str, Field(min_length=1, max_length=50)] | None = None
    reply_in_thread: bool = False


class NewMessage(NewReply):
    receive_id: Filled
    reply_in_thread: Literal[False] = False


class Edit(FeishuShape):
    msg_type: Literal["text", "post"]
    content: Filled


class CardUpdate(FeishuShape):
    content: Filled


class MessageQuery(FeishuShape):
    receive_id_type: Literal["chat_id", "open_id"]


class MembersQuery(FeishuShape):
    member_id_type: Literal["app_id"]


class MembersListQuery(FeishuShape):
    member_id_type: Literal["open_id"]
    page_size: Annotated[str, Field(pattern="^([1-9][0-9]?|100)$")] = "20"
    page_token: Annotated[str, Field(pattern="^[0-9]+$")] | None = None


class Members(FeishuShape):
    id_list: Annotated[list[Filled], Field(min_length=1, max_length=5)]


class ResourceQuery(FeishuShape):
    type: Filled


class ReactionType(FeishuShape):
    emoji_type: Filled


class NewReaction(FeishuShape):
    reaction_type: ReactionType


class ReactionQuery(FeishuShape):
    reaction_type: Filled


class Credentials(FeishuShape):
    app_id: Filled
    app_secret: Filled


class TextContent(FeishuShape):
    text: Words


class Markdown(FeishuShape):
    tag: Literal["md"]
    text: Words


class Plain(FeishuShape):
    tag: Literal["text"]
    text: str
    style: list[Literal["bold", "italic", "underline", "lineThrough"]] = []


class Link(FeishuShape):
    tag: Literal["a"]
    text: str
    href: str


Node: TypeAlias = Annotated[Markdown | Plain | Link, Field(discriminator="tag")]


def _alone(nodes: list[Any]) -> list[Any]:
    if len(nodes) > 1 and any(node.tag == "md" for node in nodes):
        raise ValueError("md must be alone in its paragraph")
    return nodes


class Localised(FeishuShape):
    title: str = ""
    content: Annotated[list[Annotated[list[Node], Field(min_length=1), AfterValidator(_alone)]], Field(min_length=1)]


Post: TypeAlias = Annotated[dict[Literal["zh_cn", "en_us", "ja_jp", "zh_hk", "zh_tw"], Localised], Field(min_length=1)]
_POST: TypeAdapter[Post] = TypeAdapter(Post)


class ImageContent(FeishuShape):
    image_key: Filled


class FileContent(FeishuShape):
    file_key: Filled


IMAGE_BYTES_MAX = 10 * 1024 * 1024
FILE_BYTES_MAX = 30 * 1024 * 1024


class NewImage(FeishuShape):
    image_type: Literal["message"]


class NewFile(FeishuShape):
    file_type: Literal["opus", "mp4", "pdf", "doc", "xls", "ppt", "stream"]
    file_name: Filled
    duration: Annotated[str, Field(pattern=r"^\d+$")] = "0"


class PlainText(FeishuShape):
    tag: Literal["plain_text"]
    content: Words


class Callback(FeishuShape):
    type: Literal["callback"]
    value: dict[str, Any]
    """The SDKs take objects alone."""


def _without_addresses(text: str) -> str:
    if re.search(r"!\[[^\]]*\]\(https?:", text):
        raise ValueError("image key is invalid (200570)")
    return text


class CardMarkdown(FeishuShape):
    tag: Literal["markdown"]
    content: Annotated[Words, AfterValidator(_without_addresses)]


class Div(FeishuShape):
    tag: Literal["div"]
    text: PlainText


class OpenUrl(FeishuShape):
    type: Literal["open_url"]
    default_url: Annotated[str, Field(pattern=r"^https?://\S+$")]

    @property
    def value(self) -> dict[str, Any]:
        return {"url": self.default_url}


Behavior: TypeAlias = Annotated[Callback | OpenUrl, Field(discriminator="type")]


class CardButton(FeishuShape):
    tag: Literal["button"]
    text: PlainText
    type: Literal["default", "primary", "danger"] = "default"
    behaviors: Annotated[list[Behavior], Field(min_length=1, max_length=1)]


class Summary(FeishuShape):
    content: str


class CardConfig(FeishuShape):
    update_multi: Literal[True]
    """The second generation knows no other."""
    enable_forward: bool = True
    summary: Summary | None = None


class PanelHeader(FeishuShape):
    title: Annotated[PlainText | CardMarkdown, Field(discriminator="tag")]


class Panel(FeishuShape):
    """Folded until a person opens it. Source: the open platform's page on `collapsible_panel` (cards of generation 2.0)."""

    tag: Literal["collapsible_panel"]
    expanded: bool = False
    header: PanelHeader
    elements: Annotated[
        list[Annotated[CardMarkdown | Div | CardButton, Field(discriminator="tag")]], Field(min_length=1)
    ]


class Checker(FeishuShape):
    """A box to tick. Source: the open platform's page on `checker` (cards of generation 2.0)."""

    tag: Literal["checker"]
    name: Filled
    text: PlainText
    checked: bool = False


class Input(FeishuShape):
    """A text field. Source: the open platform's page on `input`: `max_length` is 1 to 1,000."""

    tag: Literal["input"]
    name: Filled
    placeholder: PlainText | None = None
    max_length: Annotated[int, Field(ge=1, le=1_000)] = 1_000


class SubmitButton(CardButton):
    name: Filled
    form_action_type: Literal["submit", "reset"]


def _named_apart(elements: list[Any]) -> list[Any]:
    names = [it.name for it in elements]
    if len(set(names)) < len(names):
        raise ValueError("every control of a form needs a name of its own (200530)")
    if not any(isinstance(it, SubmitButton) and it.form_action_type == "submit" for it in elements):
        raise ValueError("a form needs a button that submits it")
    return elements


class CardForm(FeishuShape):
    """Controls that are submitted together. Source: the open platform's page on `form`."""

    tag: Literal["form"]
    name: Filled
    elements: Annotated[
        list[Annotated[Checker | Input | SubmitButton, Field(discriminator="tag")]],
        Field(min_length=1),
        AfterValidator(_named_apart),
    ]


Element: TypeAlias = Annotated[CardMarkdown | Div | CardButton | Panel | CardForm, Field(discriminator="tag")]


TABLES_MAX = 5
_FENCED = re.compile(r"^([ >]*)(`{3,}|~{3,}).*?(?:^[ >]*\2.*?$|\Z)", re.M | re.S)
_TABLE = re.compile(r"^.*\|.*\n[ >]*\|?[ :]*-[-|: ]*$", re.M)


def within_tables(elements: list[Any]) -> list[Any]:
    inner = [it for panel in elements if panel.tag == "collapsible_panel" for it in panel.elements]
    texts = [_FENCED.sub("", it.content) for it in (*elements, *inner) if it.tag == "markdown"]
    if sum(len(_TABLE.findall(text)) for text in texts) > TABLES_MAX:
        raise ValueError("card table number over limit (11310)")
    return elements


def _words(it: Any) -> str:
    match it:
        case CardButton():
            return ""
        case Div():
            return it.text.content
        case CardForm():
            return "\n".join(f"[ ] {box.text.content}" for box in it.elements if isinstance(box, Checker))
        case Panel():
            return "\n".join((it.header.title.content, *map(_words, it.elements)))
        case _:
            return str(it.content)


class CardBody(FeishuShape):
    elements: Annotated[list[Element], Field(min_length=1, max_length=200), AfterValidator(within_tables)]


class Card(FeishuShape):
    schema_: Annotated[Literal["2.0"], Field(alias="schema")]
    config: CardConfig
    body: CardBody

    @property
    def shown(self) -> str:
        """What a person reads, without the buttons and with what they unfold."""
        return "\n".join(text for it in self.body.elements if (text := _words(it)))

    @property
    def unfolded(self) -> str:
        """What a person reads who opens nothing."""
        return "\n".join(text for it in self.body.elements if not isinstance(it, Panel) and (text := _words(it)))

    @property
    def buttons(self) -> dict[str, dict[str, Any]]:
        """What each gives back, by its label."""
        buttons = [it for it in self.body.elements if isinstance(it, CardButton)]
        return {it.text.content: it.behaviors[0].value for it in buttons}

    @property
    def form(self) -> CardForm | None:
        return next((it for it in self.body.elements if isinstance(it, CardForm)), None)


def card_of(raw: str) -> Card:
    """Raises Refusal, with the cause inside as Feishu puts it."""
    try:
        return parsed(Card, raw, code=230099)
    except Refusal as refusal:
        raise Refusal(230099, f"Failed to create card content, ext=ErrCode: 200861; {refusal.message}") from None


def parsed(shape: type[T] | TypeAdapter[T], raw: bytes | str | Mapping[str, Any], *, code: int = 99992402) -> T:
    """Raises Refusal."""
    adapter = shape if isinstance(shape, TypeAdapter) else TypeAdapter(shape)
    try:
        return adapter.validate_json(raw) if isinstance(raw, bytes | str) else adapter.validate_python(raw)
    except ValidationError as error:
        found = error.errors()[0]
        raise Refusal(code, f"field validation failed: {found['loc']} {found['msg']}") from None


class _CardId(FeishuShape):
    card_id: Filled


class _SentCard(FeishuShape):
    type: Literal["card"]
    data: _CardId


def sent_card(message: NewReply) -> str | None:
    """The card of CardKit that a message names."""
    if message.msg_type != "interactive" or '"card_id"' not in message.content:
        return None
    return parsed(_SentCard, message.content, code=230001).data.card_id


def check_content(kind: str, raw: str) -> str:
    """What a person reads of it."""
    if len(raw.encode()) > (TEXT_BYTES_MAX if kind == "text" else POST_BYTES_MAX):
        raise Refusal(230025, "The length of the message content reaches its limit.")
    if kind == "text":
        return parsed(TextContent, raw, code=230001).text
    if kind == "image":
        return parsed(ImageContent, raw, code=230001).image_key
    if kind in ("file", "audio"):
        return parsed(FileContent, raw, code=230001).file_key
    if kind == "interactive":
        return card_of(raw).shown
    *_, shown = parsed(_POST, raw, code=230001).values()
    return "\n".join("".join(node.text for node in nodes) for nodes in shown.content)
