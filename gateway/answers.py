"""How the web chat's door answers: JSON that says what went wrong and what to do, and what a browser may do with it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import orjson
import structlog
from fastapi import Request, Response
from pydantic import BaseModel, ValidationError

from channels.channel import Rejected
from channels.web.admission import CLOSED, SPENT_LINK, WRONG_TOKEN
from gateway.request import Guesses, Unreadable, read_body
from gateway.store.store import StoreUnavailable

JSON_BYTES_MAX = 16_384
JSON_SECONDS = 10.0
POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}

_CODES = {CLOSED: "closed", WRONG_TOKEN: "wrong-token", SPENT_LINK: "link-spent"}
_STATUS_CODES = {401: "signed-out", 403: "forbidden"}

Route = Callable[[Request], Awaitable[Response]]
T = TypeVar("T", bound=BaseModel)
log = structlog.get_logger()


def catch_errors(route: Route, guesses: Guesses) -> Route:
    """What goes wrong, as an answer that the page can show."""

    async def answer(request: Request) -> Response:
        try:
            return await route(request)
        except Rejected as rejected:
            if rejected.guess and (wait := guesses.wait(request.scope)):
                return too_many(wait)
            code = _CODES.get(rejected.reason) or _STATUS_CODES.get(rejected.status, "refused")
            if rejected.guess:
                log.warning("token_refused", reason=rejected.reason)
            return problem(rejected.status, code, rejected.sentence)
        except Unreadable as unreadable:
            return problem(unreadable.status, "unreadable", f"The request could not be read: {unreadable.reason}.")
        except StoreUnavailable as error:
            log.error("web_unavailable", error=repr(error))
            return problem(503, "unavailable", "The database is not available. Try again in a moment.")

    return answer


async def read_json(request: Request, model: type[T]) -> T:
    """The JSON body. Raises Unreadable."""
    body = await read_body(request, bytes_max=JSON_BYTES_MAX, seconds=JSON_SECONDS)
    try:
        return model.model_validate_json(body)
    except ValidationError:
        raise Unreadable(400, f"expected JSON with {', '.join(model.model_fields)}") from None


def answer_json(content: Mapping[str, Any]) -> Response:
    return Response(
        orjson.dumps(content), headers=HEADERS | {"cache-control": "no-store"}, media_type="application/json"
    )


def too_many(wait_seconds: int) -> Response:
    """The answer to one more wrong token, at any door."""
    sentence = (
        f"Too many wrong tokens from this address. A right one passes; a wrong one is looked at in {wait_seconds} s."
    )
    return problem(429, "too-many-attempts", sentence, retry_seconds=wait_seconds)


def problem(status: int, code: str, sentence: str, *, retry_seconds: int | None = None) -> Response:
    body = orjson.dumps({"error": sentence, "code": code})
    retry = {} if retry_seconds is None else {"retry-after": str(retry_seconds)}
    return Response(body, status, HEADERS | {"cache-control": "no-store"} | retry, media_type="application/json")
