"""Feishu's envelope: the signature over the raw bytes, and the encryption inside it. Pure.

Source: the open platform's page on event subscription, checked against lark-oapi in the tests. The digest is a plain
SHA-256 over timestamp, nonce, key and body, so field borders could shift and the body be extended: hence the strict grammar
of every part, and the body must be exactly one JSON document.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from datetime import datetime
from typing import Any

import orjson
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

from channels.channel import Rejected, WebhookRequest
from channels.wire import BEYOND, fits, mapping

TIMESTAMP_HEADER = "x-lark-request-timestamp"
NONCE_HEADER = "x-lark-request-nonce"
SIGNATURE_HEADER = "x-lark-signature"
_TIMESTAMP = re.compile(r"[0-9]{10}")
_NONCE = re.compile(r"[\x21-\x7e]{1,128}")
_SIGNATURE = re.compile(r"[0-9a-f]{64}")
_BLOCK_BYTES = 16
CHALLENGE_BYTES_MAX = 1_024


def opened(request: WebhookRequest, *, key: str, now: datetime, window_seconds: int | None) -> dict[str, Any]:
    """Return the event of a delivery with a valid envelope. Raises Rejected."""
    if not key:
        event = parse(request.body)
        if list(event) == ["encrypt"]:
            raise Rejected("body is encrypted, and no key is set", cause="keyless")
        return event
    if is_signed(request):
        verify(request, key=key, now=now, window_seconds=window_seconds)
        return decrypt(encrypted_part(request.body), key)
    if len(request.body) > CHALLENGE_BYTES_MAX:
        raise Rejected("signature missing", cause="unsigned")
    event = decrypt(encrypted_part(request.body), key)
    if challenge(event) is None:
        raise Rejected("signature missing", cause="unsigned")
    return event


def challenge(event: dict[str, Any]) -> str | None:
    """Return the challenge of a URL check, in the old form or as a 2.0 event; None for other events. Raises Rejected."""
    header = event.get("header")
    kind = header.get("event_type") if isinstance(header, dict) else event.get("type")
    if kind != "url_verification":
        return None
    found = event.get("challenge", mapping(event, "event").get("challenge"))
    if not isinstance(found, str):
        raise Rejected("challenge missing", status=400)
    return found


def is_signed(request: WebhookRequest) -> bool:
    """Return True if any of the three headers is present, even repeated: then all of them must be valid."""
    names = (TIMESTAMP_HEADER, NONCE_HEADER, SIGNATURE_HEADER)
    return any(name in names for name, _ in request.headers)


def check_fields(request: WebhookRequest, *, now: datetime, window_seconds: int | None) -> tuple[str, str, str]:
    """Return timestamp, nonce and signature, well-formed and recent. Raises Rejected."""
    timestamp = request.header(TIMESTAMP_HEADER) or ""
    nonce = request.header(NONCE_HEADER) or ""
    signature = request.header(SIGNATURE_HEADER) or ""
    if not _TIMESTAMP.fullmatch(timestamp) or not _NONCE.fullmatch(nonce) or not _SIGNATURE.fullmatch(signature):
        raise Rejected("signature missing or malformed", cause="unsigned")
    if window_seconds is not None and abs(now.timestamp() - int(timestamp)) > window_seconds:
        raise Rejected("signature too old", guess=True, cause="clock")
    return timestamp, nonce, signature


def verify(request: WebhookRequest, *, key: str, now: datetime, window_seconds: int | None) -> None:
    """Raises Rejected unless the raw body has a signature of this key."""
    timestamp, nonce, signature = check_fields(request, now=now, window_seconds=window_seconds)
    if not hmac.compare_digest(sign(timestamp, nonce, key, request.body).encode(), signature.encode()):
        raise Rejected("signature wrong", guess=True, cause="encryptKey")


def sign(timestamp: str, nonce: str, key: str, body: bytes) -> str:
    return hashlib.sha256((timestamp + nonce + key).encode() + body).hexdigest()


def url_check(value: str, *, key: str, token: str, now: datetime) -> WebhookRequest:
    """Return a URL check as the platform makes one: signed and encrypted if there is a key."""
    body = orjson.dumps({"type": "url_verification", "token": token, "challenge": value})
    if not key:
        return WebhookRequest(headers=(), body=body)
    padder = PKCS7(_BLOCK_BYTES * 8).padder()
    start = secrets.token_bytes(_BLOCK_BYTES)
    cipher = Cipher(algorithms.AES256(hashlib.sha256(key.encode()).digest()), modes.CBC(start)).encryptor()
    sealed = start + cipher.update(padder.update(body) + padder.finalize()) + cipher.finalize()
    body = orjson.dumps({"encrypt": base64.b64encode(sealed).decode()})
    timestamp, nonce = f"{now.timestamp():.0f}", secrets.token_hex(8)
    signed = sign(timestamp, nonce, key, body)
    headers = ((TIMESTAMP_HEADER, timestamp), (NONCE_HEADER, nonce), (SIGNATURE_HEADER, signed))
    return WebhookRequest(headers=headers, body=body)


def same(value: object, expected: str) -> bool:
    """Compare a token in constant time, as bytes; False for a non-string."""
    if not isinstance(value, str):
        return False
    return hmac.compare_digest(value.encode(errors="surrogatepass"), expected.encode())


def parse(raw: bytes) -> dict[str, Any]:
    """Parse one JSON object strictly. Raises Rejected."""
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise Rejected("body is not JSON", status=400) from None
    if not isinstance(found, dict):
        raise Rejected("body is not a JSON object", status=400)
    return _of_size(raw, found)


def _of_size(raw: bytes, event: dict[str, Any]) -> dict[str, Any]:
    if not fits(raw, event):
        # Genuine, so neither a guess nor a setting's fault.
        raise Rejected(BEYOND, status=400, sentence=f"The event is {BEYOND}.")
    return event


def encrypted_part(body: bytes) -> str:
    """Return the string under `encrypt`, which must be the only member. Raises Rejected."""
    try:
        outer = orjson.loads(body)
    except orjson.JSONDecodeError:
        outer = None
    if not isinstance(outer, dict) or list(outer) != ["encrypt"] or not isinstance(inner := outer["encrypt"], str):
        raise Rejected("body is not encrypted", status=400, cause="unsigned")
    return inner


def decrypt(text: str, key: str) -> dict[str, Any]:
    """Return the decrypted object. Raises Rejected, with one message for every fault except size, to be no padding
    oracle."""
    try:
        raw = base64.b64decode(text, validate=True)
        if len(raw) < 2 * _BLOCK_BYTES or len(raw) % _BLOCK_BYTES:
            raise ValueError
        secret = algorithms.AES256(hashlib.sha256(key.encode()).digest())
        decryptor = Cipher(secret, modes.CBC(raw[:_BLOCK_BYTES])).decryptor()
        padded = decryptor.update(raw[_BLOCK_BYTES:]) + decryptor.finalize()
        unpadder = PKCS7(_BLOCK_BYTES * 8).unpadder()
        plain = unpadder.update(padded) + unpadder.finalize()
        found = orjson.loads(plain)
        if not isinstance(found, dict):
            raise ValueError
    except (ValueError, binascii.Error):
        raise Rejected("cannot be decrypted", status=400, guess=True, cause="encryptKey") from None
    return _of_size(plain, found)
