"""A call of the Bot API as it was received: query, form, JSON or an upload, all of it read into one `Received`.

What a method takes is in `models`; what the parameters mean is not here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.parser import HeaderParser
from typing import Any
from urllib.parse import parse_qsl

import orjson
from pydantic import ValidationError
from starlette.requests import Request

from tests.emulators.telegram.models import Call
from tests.emulators.telegram.rules import bad_request


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """A file that came with a call."""

    name: str
    mime_type: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Received:
    """`parameters` are as they were received: typed where the call was JSON, otherwise text."""

    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Upload] = field(default_factory=dict)

    def parsed(self, shape: type[Call]) -> Any:
        """As the method's model. Raises Refusal."""
        values = " ".join(str(value) for value in self.parameters.values())
        loose = {name: name for name in self.files if not re.search(rf"attach://{re.escape(name)}\b", values)}
        try:
            return shape.model_validate_json(orjson.dumps({**self.parameters, **loose}))
        except ValidationError as error:
            found = error.errors()[0]
            raise bad_request(f"{'.'.join(map(str, found['loc']))}: {found['msg']}") from None


async def read_call(request: Request, method: str) -> Received:
    """Raises Refusal where the body is not what its content type says."""
    body = await request.body()
    parameters: dict[str, Any] = dict(request.query_params)
    files: dict[str, Upload] = {}
    content_type = request.headers.get("content-type", "")
    try:
        match content_type.partition(";")[0].strip().lower():
            case "application/json" if body:
                parameters |= orjson.loads(body)
            case "application/x-www-form-urlencoded":
                parameters |= dict(parse_qsl(body.decode(), keep_blank_values=True))
            case "multipart/form-data":
                fields, files = parse_multipart(content_type, body)
                parameters |= fields
            case _ if body:
                raise ValueError("content type is not supported")
    except (TypeError, ValueError) as error:
        raise bad_request(f"the body cannot be read: {error}") from None
    return Received(method=method, parameters=parameters, files=files)


def parse_multipart(content_type: str, body: bytes) -> tuple[dict[str, str], dict[str, Upload]]:
    """The fields and the files of a form. Raises ValueError."""
    boundary = HeaderParser().parsestr(f"content-type: {content_type}\n\n").get_boundary()
    pieces = (b"\r\n" + body).split(f"\r\n--{boundary}".encode())
    if not boundary or len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        raise ValueError("no form")
    fields: dict[str, str] = {}
    files: dict[str, Upload] = {}
    for piece in pieces[1:-1]:
        head, _, content = piece.partition(b"\r\n\r\n")
        headers = HeaderParser().parsestr(head.decode().lstrip())
        name, file_name = str(headers.get_param("name", header="content-disposition")), headers.get_filename()
        if file_name is None:
            fields[name] = content.decode()
        else:
            files[name] = Upload(name=file_name, mime_type=headers.get_content_type(), content=content)
    return fields, files
