"""A call of the Bot API as it came: query, form, JSON or an upload, all of it read into one `Asked`.

The getters read a parameter as what the method needs; a wrong type is refused. What the parameters mean is not here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from email.parser import HeaderParser
from typing import Any
from urllib.parse import parse_qsl

import orjson
from starlette.requests import Request

from tests.emulators.telegram.rules import Refusal, bad_request


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """A file that came with a call."""

    name: str
    mime_type: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """`parameters` are as they came: typed where the call was JSON, otherwise text."""

    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Upload] = field(default_factory=dict)

    def check_names(self, known: frozenset[str]) -> None:
        """Stricter than Telegram on purpose: it ignores what it does not know, and so a misspelt name goes unseen."""
        values = [value for value in self.parameters.values() if isinstance(value, str)]
        loose = [name for name in self.files if f"attach://{name}" not in values]
        for name in [*self.parameters, *loose]:
            if name not in known:
                raise bad_request(f'unknown parameter "{name}"')

    def text(self, name: str) -> str | None:
        value = self.parameters.get(name)
        if value is None and name not in self.parameters:
            return None
        if not isinstance(value, str):
            raise _wrong(name)
        return value

    def number(self, name: str) -> int | None:
        value = self.parameters.get(name)
        if name not in self.parameters:
            return None
        if isinstance(value, str) and value.removeprefix("-").isdecimal():
            return int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise _wrong(name)
        return value

    def needed_number(self, name: str) -> int:
        number = self.number(name)
        if number is None:
            raise _wrong(name)
        return number

    def flag(self, name: str) -> bool:
        value = self.parameters.get(name, False)
        if value in ("true", "false"):
            return bool(value == "true")
        if not isinstance(value, bool):
            raise _wrong(name)
        return value

    def structure(self, name: str) -> Any:
        """An object or a list, which a form carries as JSON text; None where there is none."""
        if name not in self.parameters:
            return None
        value = self.parameters[name]
        if isinstance(value, str):
            try:
                value = orjson.loads(value)
            except orjson.JSONDecodeError:
                raise _wrong(name) from None
        if not isinstance(value, dict | list):
            raise _wrong(name)
        return value

    def object(self, name: str, known: frozenset[str]) -> dict[str, Any] | None:
        """An object with members of these names only, for the same reason as `check_names`."""
        value = self.structure(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise _wrong(name)
        if unknown := sorted(set(value) - known):
            raise bad_request(f'unknown parameter "{name}.{unknown[0]}"')
        return value

    def rows(self, name: str) -> list[Any] | None:
        value = self.structure(name)
        if value is not None and not isinstance(value, list):
            raise _wrong(name)
        return value


async def read_call(request: Request, method: str) -> Asked:
    """Raises Refusal where the body is not what its content type says."""
    body = await request.body()
    parameters: dict[str, Any] = dict(request.query_params)
    files: dict[str, Upload] = {}
    content_type = request.headers.get("content-type", "")
    match content_type.partition(";")[0].strip().lower():
        case "application/json" if body:
            parameters |= _json(body)
        case "application/x-www-form-urlencoded":
            parameters |= dict(parse_qsl(_utf8(body), keep_blank_values=True))
        case "multipart/form-data":
            fields, files = parse_multipart(content_type, body)
            parameters |= fields
        case _ if body:
            raise bad_request("content type is not supported")  # our wording
    return Asked(method=method, parameters=parameters, files=files)


def parse_multipart(content_type: str, body: bytes) -> tuple[dict[str, str], dict[str, Upload]]:
    """The fields and the files of a form."""
    boundary = HeaderParser().parsestr(f"content-type: {content_type}\n\n").get_boundary()
    pieces = (b"\r\n" + body).split(f"\r\n--{boundary}".encode())
    if not boundary or len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        raise bad_request("the form cannot be read")  # our wording
    fields: dict[str, str] = {}
    files: dict[str, Upload] = {}
    for piece in pieces[1:-1]:
        head, _, content = piece.partition(b"\r\n\r\n")
        headers = HeaderParser().parsestr(_utf8(head).lstrip())
        name, file_name = headers.get_param("name", header="content-disposition"), headers.get_filename()
        if not isinstance(name, str):
            raise bad_request("the form cannot be read")
        if file_name is None:
            fields[name] = _utf8(content)
        else:
            files[name] = Upload(name=file_name, mime_type=headers.get_content_type(), content=content)
    return fields, files


def _json(body: bytes) -> dict[str, Any]:
    try:
        parameters = orjson.loads(body)
    except orjson.JSONDecodeError:
        parameters = None
    if not isinstance(parameters, dict):
        raise bad_request("can't parse JSON object")  # our wording
    return parameters


def _utf8(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise bad_request("strings must be encoded in UTF-8") from None


def _wrong(name: str) -> Refusal:
    return bad_request(f"wrong parameter {name} in request")
