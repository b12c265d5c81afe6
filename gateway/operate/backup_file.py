"""The backup file: a compressed tar archive of regular files, with a manifest at its end.

A backup to restore is untrusted. So it is verified against its manifest before anything is used, and folders and links are
created from the manifest alone.
"""

import gzip
import io
import posixpath
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, Annotated, Literal

from pydantic import Field, ValidationError

from channels.section import Section
from gateway.program import OperatorError
from gateway.store.migrate import HEAD, refuse_unknown

MANIFEST = "manifest.json"
FILES = "files/"
ELSEWHERE = "elsewhere"
"""The folder for files from outside the config's folder."""
ROWS = "database.jsonl"
"""The rows of PostgreSQL."""
MEMBERS_MAX = 2_000_000
MANIFEST_BYTES_MAX = 512 * 1024 * 1024
CHUNK = 1024 * 1024
_DAMAGE = (
    *(tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile, ValueError, OverflowError, MemoryError),
    RecursionError,  # tarfile calls itself for each header that only names the next one
)
_UNUSABLE = re.compile("[\0-\x1f\x7f\ud800-\udfff]")

Mode = Annotated[int, Field(ge=0, le=0o777)]
Size = Annotated[int, Field(ge=0, le=2**62)]
Id = Annotated[int, Field(ge=0, le=2**32 - 2)]
Seconds = Annotated[int, Field(ge=0, le=2**36)]


class BadBackup(OperatorError):
    """The file is damaged, or is no backup of Clawgate: nothing was restored."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{self.__doc__} ({why})")


class BackupEntry(Section):
    """A folder of the backup, and its user and group."""

    path: str
    mode: Mode
    uid: Id = 0
    gid: Id = 0


class BackupMember(BackupEntry):
    """A regular file of the backup."""

    size: Size
    modified: Seconds = 0
    sha256: str


class BackupLink(Section):
    path: str
    target: str


class Manifest(Section):
    """The contents of a backup; paths are relative to the folder of the config."""

    format: Literal[1] = 1
    clawgate: str
    made: str
    config: str
    database: str | None = None
    """The file of the database; None if there was none yet."""
    kind: Literal["sqlite", "postgresql"]
    revision: Annotated[str, Field(pattern=r"^\d{4}$")] | None = None
    served: bool
    """Tells whether a gateway served during the backup."""
    files: tuple[BackupMember, ...]
    folders: tuple[BackupEntry, ...]
    links: tuple[BackupLink, ...]
    moved: dict[str, str] = {}
    """The original paths of files from outside the config's folder, by the path in the backup."""
    variables: tuple[str, ...] = ()
    """The variables that the config needs and that no file of the backup sets."""


def read_manifest(file: IO[bytes], *, bytes_max: int) -> Manifest:
    """Read the whole archive, verify all files, and return the manifest. Raise BadBackup if anything differs."""
    seen: dict[str, tuple[int, str]] = {}
    found: Manifest | None = None
    total = 0
    for name, size, content in members(file):
        total += size
        if total > bytes_max:
            raise OperatorError(f"the disk has not enough room: the backup holds more than {bytes_max:,} bytes")
        if found or name in seen or len(seen) >= MEMBERS_MAX:
            raise BadBackup("a file too many")
        if name == MANIFEST:
            if size > MANIFEST_BYTES_MAX:
                raise BadBackup("its manifest is too large")
            pieces: list[bytes] = []
            digest(content, pieces.append)
            found = _manifest(b"".join(pieces))
        else:
            seen[name] = size, digest(content)
    if found is None:
        raise BadBackup("it ends too early")
    told = {FILES + it.path: (it.size, it.sha256) for it in found.files}
    if wrong := sorted(it for it in told.keys() | seen.keys() if told.get(it) != seen.get(it)):
        raise BadBackup(f"{wrong[0][:200]!r} is not as it was written")
    return found


def members(file: IO[bytes]) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Yield name, size and content of each file; read the content before the next one. Raise BadBackup."""
    with _damage():
        file.seek(0)
        with gzip.GzipFile(fileobj=file) as plain, tarfile.open(fileobj=_ShortReads(plain), mode="r:") as tar:
            while (member := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined] # it would keep every header
                content = tar.extractfile(member) if member.isreg() and not member.issparse() else None
                if content is None:
                    raise BadBackup("it holds more than regular files")
                yield member.name, member.size, content


def digest(content: IO[bytes], write: Callable[[bytes], object] = lambda _: None) -> str:
    """Return the SHA-256 of the content, passing each chunk to `write`."""
    with _damage():
        whole = sha256()
        while piece := content.read(CHUNK):
            whole.update(piece)
            write(piece)
        return whole.hexdigest()


def _manifest(content: bytes) -> Manifest:
    if re.match(rb'\{"format": ?(?!1\b)\d+', content):
        raise OperatorError("a newer Clawgate made this backup: install that one (`clawgate --version`)")
    try:
        found = Manifest.model_validate_json(content)
    except (ValidationError, RecursionError):
        raise BadBackup("its manifest cannot be read") from None
    if found.revision is not None and found.revision > HEAD:
        raise OperatorError(
            f"the backup has a database of revision {found.revision}, and this Clawgate knows none after {HEAD}: "
            f"install Clawgate {found.clawgate} or newer"
        )
    refuse_unknown(found.revision)
    if fault := _fault(found):
        raise BadBackup(fault)
    return found


def _fault(manifest: Manifest) -> str:
    links = {it.path for it in manifest.links}
    files, folders = {it.path for it in manifest.files}, {it.path for it in manifest.folders}
    everything = [*(it.path for it in manifest.files), *(it.path for it in manifest.folders), *links, *manifest.moved]
    for path in everything:
        if not is_inside(path):
            return f"{path[:200]!r} leads out of the folder"
        if {*_above(path)} & (links | files):
            return f"{path[:200]!r} lies in what is no folder"
    if files & folders or files & links or folders & links or len(files) != len(manifest.files):
        return "two files have one name"
    if far := next((it.path for it in manifest.links if not stays_inside(it.path, it.target)), None):
        return f"the link {far[:200]!r} leads out of the folder"
    if manifest.config not in files or manifest.database not in (None, *files):
        return "it lacks its config or its database"
    return ""


def is_inside(path: str) -> bool:
    """Return whether a relative path is plain and stays inside its folder."""
    parts = path.split("/")
    return not _UNUSABLE.search(path) and not any(it in ("", ".", "..") for it in parts) and len(path) < 4_096


def stays_inside(link: str, target: str) -> bool:
    """Return whether a link's target is inside the folder, whatever other links there are: `..` is allowed only at the
    beginning, where the parents are real folders."""
    parts = [it for it in target.split("/") if it != "."]
    climbs = next((n for n, it in enumerate(parts) if it != ".."), len(parts))
    return climbs <= link.count("/") and (parts[climbs:] == [] or is_inside("/".join(parts[climbs:])))


def _above(path: str) -> Iterator[str]:
    while path := posixpath.dirname(path):
        yield path


@contextmanager
def _damage() -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise BadBackup(str(error) or type(error).__name__) from None


class _ShortReads(io.RawIOBase):
    """Limits the size of a read: tarfile would read a header of gigabytes whole."""

    def __init__(self, plain: gzip.GzipFile) -> None:
        self._plain = plain

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= CHUNK * 16:
            raise ValueError("a header is too large")
        return self._plain.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._plain.seek(offset, whence)

    def tell(self) -> int:
        return self._plain.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True


def opened(path: Path) -> IO[bytes]:
    """Open an archive for reading. Raise OperatorError."""
    try:
        return path.open("rb")
    except OSError as error:
        raise OperatorError(f"{path}: {error.strerror}") from None
