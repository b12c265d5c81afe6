"""Codes that people copy by hand, `XXXX-XXXX`: how one is made, and the hash that is kept of one."""

import hashlib
import secrets

ALPHABET = "ABCDEFGHJKMNPQRSTVWXYZ234567"
"""Base32 without I, L, O and U."""
HALF_CHARS = 4


def new_code() -> str:
    """38 random bits."""
    return written([secrets.choice(ALPHABET) for _ in range(2 * HALF_CHARS)])


def written(letters: list[str]) -> str:
    return f"{''.join(letters[:HALF_CHARS])}-{''.join(letters[HALF_CHARS:])}"


def hashed(code: str) -> str | None:
    """The hash that is kept of a code, however a person has typed it; None if it cannot be one."""
    plain = code.strip().upper().replace("-", "", 1)
    if len(plain) != 2 * HALF_CHARS or set(plain) - set(ALPHABET):
        return None
    return hashlib.sha256(f"clawgate pairing {plain}".encode()).hexdigest()
