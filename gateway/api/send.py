"""`POST /v1/send`: a program has the gateway send a message, wherever its bots may write. See docs/api.md."""

import base64
import binascii

from pydantic import BaseModel, ConfigDict, ValidationError

from channels.message import File, Place
from gateway.api.call import ApiError
from gateway.config.channels import ChannelsConfig
from gateway.config.places import place_in
from gateway.outbox.messenger import file_of
from gateway.store.sends import SendOutcome
from gateway.turns.attachments import FILES_MAX
from tools.attachment import safe_name


class SentFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    data: str
    """The bytes in base64."""


class SendBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    to: str
    text: str = ""
    files: list[SentFile] = []


def parsed(raw: bytes, channels: ChannelsConfig, file_bytes: int) -> tuple[Place, str, list[File]]:
    """The place, the text and the files that a body names. Raises ApiError."""
    try:
        body = SendBody.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        param = ".".join(map(str, first["loc"]))
        raise ApiError(400, f"{param or 'The body'}: {first['msg']}", param=param or None) from None
    try:
        place = place_in(channels, body.to)
    except ValueError as error:
        raise ApiError(400, f"to: {error}", param="to", code="unknown_place") from None
    if not body.text.strip() and not body.files:
        raise ApiError(400, "The message is empty: give text, files, or both.", param="text")
    if len(body.files) > FILES_MAX:
        raise ApiError(400, f"A message has at most {FILES_MAX} files.", param="files")
    return place, body.text, [_file(it, number, file_bytes) for number, it in enumerate(body.files)]


def _file(sent: SentFile, number: int, file_bytes: int) -> File:
    param = f"files.{number}.data"
    try:
        data = base64.b64decode(sent.data, validate=True)
    except (binascii.Error, ValueError):
        raise ApiError(400, f"{param}: expected base64.", param=param) from None
    if not data or len(data) > file_bytes:
        what = f"larger than {file_bytes:,} bytes (limits.fileBytes)" if data else "empty"
        raise ApiError(413 if data else 400, f"{param}: the file is {what}.", param=param)
    return file_of(safe_name(sent.name), data)


def answer_of(id_: str, outcome: SendOutcome) -> tuple[int, dict[str, object]]:
    """Status and content: 200 once it is sent, 202 while it is tried further. Raises ApiError if it is refused."""
    if outcome.state == "refused":
        message = f"It was not sent: {outcome.reason}"
        raise ApiError(502, message, type_="server_error", code="not_delivered", final=True)
    content: dict[str, object] = {
        "id": id_,
        "object": "message",
        "state": outcome.state,
        "message_ids": [*outcome.message_ids],
    }
    return 200 if outcome.state == "sent" else 202, content
