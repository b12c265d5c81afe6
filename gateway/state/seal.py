"""Encryption of what the database must not hold in plain text: users' tokens, with AES-256-GCM.

The key is derived from `CLAWGATE_SECRET_KEY`, or from a file that the first use writes next to the database, readable
only by the gateway's user. A text is bound to its row and column, so a copy in another user's row cannot be decrypted.
A wrong or lost key never stops a start: what it encrypted counts as lost, and its user logs in again.
"""

import base64
import os
import secrets
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gateway.config.root import Config

VARIABLE: Final = "CLAWGATE_SECRET_KEY"
FILE: Final = "secret.key"
KEY_CHARS_MIN = 16
"""A shorter key in the environment is warned of: it could be guessed."""
_PURPOSE = b"clawgate.seal.v1"
_VERSION = "1."
_NONCE_BYTES = 12


class Unsealable(Exception):
    """The text was sealed with another key, for another row, or not at all."""


def key_file(config: Config) -> Path:
    """Return the path of the key file: next to SQLite's file, or in the data folder of a gateway on PostgreSQL."""
    database = config.database.path
    return Path(database).with_name(FILE) if database else Path(config.tools.files.uploads_dir).parent / FILE


class Seal:
    """Seals and opens texts. Blocking on first use, for one small file."""

    def __init__(self, environment: Mapping[str, str], file: Path) -> None:
        self._secret = environment.get(VARIABLE, "").strip()
        self._file = file
        self._cipher: AESGCM | None = None

    def seal(self, text: str, *names: str) -> str:
        """Encrypt a text for the row and column `names`. Raises OSError if the key can be neither read nor written."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + self._opened().encrypt(nonce, text.encode(), _bound(names))
        return _VERSION + base64.urlsafe_b64encode(sealed).decode()

    def unseal(self, sealed: str, *names: str) -> str:
        """Decrypt a text of that row and column. Raises Unsealable, OSError."""
        try:
            data = base64.urlsafe_b64decode(sealed.removeprefix(_VERSION))
            return self._opened().decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _bound(names)).decode()
        except (InvalidTag, ValueError):
            raise Unsealable from None

    def _opened(self) -> AESGCM:
        if self._cipher is None:
            secret = self._secret or _read(self._file) or _made(self._file)
            key = HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE).derive(secret.encode(errors="replace"))
            self._cipher = AESGCM(key)
        return self._cipher


def _bound(names: tuple[str, ...]) -> bytes:
    return b"\0".join((_PURPOSE, *(it.encode(errors="replace") for it in names)))


def _read(file: Path) -> str:
    with suppress(FileNotFoundError):
        return file.read_text(encoding="utf-8", errors="replace").strip()
    return ""


def _made(file: Path) -> str:
    """Write a new key, whole and private from the start; of two processes that do so, both use the first one's."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as written:
            written.write(secrets.token_urlsafe(32) + "\n")
            written.flush()
            os.fsync(written.fileno())
        if file.exists() and not _read(file):
            Path(draft).replace(file)
        else:
            with suppress(FileExistsError):
                os.link(draft, file)
    finally:
        Path(draft).unlink(missing_ok=True)
    return _read(file)
