"""What the emulated Bot API answers when it refuses, and its rules that are no shapes: markup, webhook addresses. Pure.

Words are the real server's where our channel reads them. Chats and their rights are not here.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from tests.emulators.telegram.formatted import Formatted, Unparsable, given_entities, trimmed, with_found

TEXT_MAX = 4096
CAPTION_MAX = 1024
RAW_BYTES_MAX = 32_768

_UPDATE_KINDS = """message edited_message channel_post edited_channel_post business_connection business_message
edited_business_message deleted_business_messages guest_message stopped_message_generation message_reaction
message_reaction_count inline_query chosen_inline_result callback_query shipping_query pre_checkout_query
purchased_paid_media poll poll_answer my_chat_member chat_member chat_join_request chat_boost removed_chat_boost
managed_bot subscription"""
UPDATE_KINDS = frozenset(_UPDATE_KINDS.split())
DEFAULT_KINDS = UPDATE_KINDS - {"chat_member", "message_reaction", "message_reaction_count"}


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


def check_text(raw: str, entities: Sequence[Mapping[str, Any]], *, may_be_empty: bool = False) -> Formatted:
    """The text of a message, as people will see it."""
    formatted = _formatted(raw, entities)
    if not formatted.text and not may_be_empty:
        raise bad_request("message text is empty")
    # Telegram counts code points here and UTF-16 units there; the smaller number of characters holds for both.
    if formatted.length > TEXT_MAX:
        raise bad_request("message is too long")
    return formatted


def check_caption(raw: str, entities: Sequence[Mapping[str, Any]]) -> Formatted:
    formatted = _formatted(raw, entities)
    if formatted.length > CAPTION_MAX:
        raise bad_request("message caption is too long")
    return formatted


def _formatted(raw: str, entities: Sequence[Mapping[str, Any]]) -> Formatted:
    if len(raw.encode()) > RAW_BYTES_MAX:
        raise bad_request("text is too long")
    try:
        return with_found(trimmed(given_entities(raw, entities)))
    except Unparsable as error:
        raise bad_request(f"can't parse entities: {error}") from None


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
    if parts.scheme != "https" or (port or 443) not in (443, 80, 88, 8443):
        raise bad_request("bad webhook: it needs HTTPS, on port 80, 88, 443 or 8443")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return
    if address.version == 6 or not address.is_global:
        raise bad_request("bad webhook: the IP address is reserved")
