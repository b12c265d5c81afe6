"""Skills as others publish them, read from a folder or a git repository; nothing of them is run.

A repository is fetched bare and shallow, and never checked out: no hook, filter, link or submodule takes effect. Its
files are read as objects, under names that are checked first. git itself runs with few of the caller's `GIT_…`
variables (`_KEPT`), few protocols, and limits on time, memory and disk.
"""

import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from skills.catalog import DOCUMENT, DOCUMENT_BYTES_MAX, is_name
from skills.frontmatter import BadSkill, SkillHead, read_head
from skills.lock import FILES_MAX, SKILL_BYTES_MAX, BadFolder, SkillFile, files_in


class BadSource(Exception):
    """The source cannot be used; the message says why, without terminal control characters."""


def shown(text: str, chars: int = 300) -> str:
    """Show untrusted text on one line, without terminal control characters."""
    safe = "".join(it if unicodedata.category(it)[0] not in "CZ" or it == " " else "�" for it in text)
    return safe if len(safe) <= chars else safe[: chars - 1] + "…"


FETCH_SECONDS = 120
REPOSITORY_BYTES_MAX = 256 * 1024 * 1024
LISTING_BYTES_MAX = 16 * 1024 * 1024
MEMORY_BYTES_MAX = 2 * 1024 * 1024 * 1024
_KEPT = ("GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH")
_SETTINGS = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.symlinks=false", "core.bigFileThreshold=16m"),
    *("submodule.recurse=false", "fetch.recurseSubmodules=false", "gc.auto=0", "maintenance.auto=false"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeEntry:
    """An object in a repository's tree."""

    mode: str
    oid: str
    size: int
    path: str


class Git:
    """git in a separate folder. A failed run raises BadSource."""

    def __init__(self, folder: Path, env: Mapping[str, str], protocols: str) -> None:
        self._folder = folder
        self._env = {name: value for name, value in env.items() if not name.startswith("GIT_") or name in _KEPT}
        self._env |= {
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": protocols,
            "GIT_NO_LAZY_FETCH": "1",
            "LC_ALL": "C",
        }
        self._words = ["git", *(word for it in _SETTINGS for word in ("-c", it))]

    def inside(self, *words: str, bytes_max: int = LISTING_BYTES_MAX, given: bytes = b"") -> bytes:
        return self.run("--git-dir=repository", *words, bytes_max=bytes_max, given=given)

    def run(self, *words: str, bytes_max: int, given: bytes = b"") -> bytes:
        """Run git and return its output. No file that it makes, its output included, may be larger than `bytes_max`."""

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, bytes_max))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
            resource.setrlimit(resource.RLIMIT_CPU, (FETCH_SECONDS, FETCH_SECONDS))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as feed:
            feed.write(given)
            feed.seek(0)
            process = subprocess.Popen(
                [*self._words, *words],
                cwd=self._folder,
                env=self._env,
                stdin=feed,
                stdout=output,
                stderr=errors,
                start_new_session=True,
                preexec_fn=limit,
            )
            try:
                code = process.wait(FETCH_SECONDS)
            except BaseException as error:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise BadSource(f"git did not end within {FETCH_SECONDS} s") from None
                raise
            output.seek(0)
            errors.seek(0)
            if code:
                raise BadSource(_failure(code, errors.read(65_536).decode(errors="replace"), bytes_max))
            return output.read()

    def contents(self, entries: Sequence[TreeEntry]) -> Iterator[bytes]:
        """Yield the contents of files, in their order."""
        asked = "".join(f"{it.oid}\n" for it in entries).encode()
        data = self.inside("cat-file", "--batch", bytes_max=2 * SKILL_BYTES_MAX, given=asked)
        offset = 0
        for entry in entries:
            begin = data.index(b"\n", offset) + 1
            if data[offset:begin].split()[1:] != [b"blob", str(entry.size).encode()]:
                raise BadSource(f"git cannot read {shown(entry.path, 80)}")
            yield data[begin : begin + entry.size]
            offset = begin + entry.size + 1


def _failure(code: int, errors: str, bytes_max: int) -> str:
    if -code == signal.SIGXFSZ or "File too large" in errors or "signal 25" in errors:
        return f"the repository is larger than {bytes_max // 1024 // 1024} MiB"
    lines = [it.removeprefix("fatal: ").removeprefix("error: ") for it in errors.splitlines() if it.strip()]
    line = next((it for it in reversed(lines) if not it.startswith(("hint:", "Please make sure", "and the repo"))), "")
    return f"git could not read it: {shown(line) or f'it ended with code {code}'}"


SKILLS_MAX = 100
DEPTH_MAX = 6
PATH_CHARS_MAX = 200
_URL = re.compile(r"(?:https?|ssh|file)://[^\s\x00-\x1f\x7f]+")
_SCP = re.compile(r"[A-Za-z0-9._]+@[A-Za-z0-9][A-Za-z0-9.-]*:[A-Za-z0-9._~/][^\s\x00-\x1f\x7f:]*")
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]{0,200}")
_FILES, _PROGRAMS = ("100644", "100664"), ("100755",)


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundSkill:
    """A skill of a source. `place` is its folder there; `left_out` are its links and submodules."""

    name: str
    head: SkillHead
    place: str
    files: tuple[SkillFile, ...]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A folder or repository as it was read. `unusable` has a reason for each folder that is no skill."""

    address: str
    commit: str
    skills: tuple[FoundSkill, ...]
    unusable: Mapping[str, str]


def read_source(address: str, env: Mapping[str, str], *, ref: str = "") -> Source:
    """Read a source; of a repository, the branch or tag `ref`, or its default branch. Raises BadSource."""
    folder = Path(address).expanduser()
    if "\0" not in address and not address.startswith("-") and folder.is_dir():
        folder = Path(os.path.realpath(folder))
        if (folder / ".git").exists() or ((folder / "HEAD").is_file() and (folder / "objects").is_dir()):
            return _repository(str(folder), env, ref, protocols="file")
        if ref:
            raise BadSource("this folder is no git repository, so it has no branches or tags")
        return _plain(folder)
    return _repository(_checked(address), env, ref, protocols="https:http:ssh:file")


def _checked(address: str) -> str:
    if _SCP.fullmatch(address):
        return address
    if not _URL.fullmatch(address):
        raise BadSource(
            f"{shown(address)} is neither a folder here nor an https, ssh or file address of a git repository"
        )
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        raise BadSource(f"{shown(address)} is no sound address") from None
    if host.startswith("-") or (parts.scheme != "file" and not host) or (parts.username or "").startswith("-"):
        raise BadSource(f"{shown(address)} is no sound address")
    if parts.password or (parts.username and parts.scheme.startswith("http")):
        raise BadSource(
            "the address holds credentials, which the lock would keep: use a credential helper of git, or ssh"
        )
    return address


def _plain(folder: Path) -> Source:
    entries: dict[str, list[str]] = {}
    for where, folders, names in os.walk(folder):
        place = os.path.relpath(where, folder).removeprefix(".").lstrip("/")
        depth = len(PurePosixPath(place).parts)
        folders[:] = sorted(it for it in folders if not it.startswith(".") and depth < DEPTH_MAX)
        if DOCUMENT in names:
            entries[place] = names
            folders.clear()
        if len(entries) > SKILLS_MAX:
            break
    skills, unusable = [], {}
    for place in entries:
        try:
            files = [it for it in files_in(folder / place) if not it.path.startswith(".git/")]
            skills.append(_skill(place, place or folder.name, files))
        except BadFolder as error:
            unusable[place] = f"it holds a link, something that is no file, or too much: {shown(error.args[0])}"
        except (BadSkill, BadSource, OSError) as error:
            unusable[place] = shown(str(error))
    return _source(str(folder), "", skills, unusable)


def _source(address: str, commit: str, skills: Sequence[FoundSkill], unusable: Mapping[str, str]) -> Source:
    kept: dict[str, FoundSkill] = {}
    unusable = dict(unusable)
    for skill in skills:
        if skill.name in kept:
            unusable[skill.place] = f"there are two skills named {skill.name}"
        kept.setdefault(skill.name, skill)
    if not kept:
        reasons = "; ".join(f"{shown(place) or 'its top'}: {why}" for place, why in list(unusable.items())[:5])
        raise BadSource(f"there is no usable skill in {shown(address)}: {reasons or f'no folder has a {DOCUMENT}'}")
    return Source(address=address, commit=commit, skills=tuple(kept.values()), unusable=unusable)


def _skill(place: str, called: str, files: Sequence[SkillFile], left_out: Sequence[str] = ()) -> FoundSkill:
    document = next(it.content for it in files if it.path == DOCUMENT)
    try:
        head = read_head(document.decode())
    except UnicodeDecodeError:
        raise BadSource(f"{DOCUMENT} is not UTF-8") from None
    if len(document) > DOCUMENT_BYTES_MAX:
        raise BadSource(f"{DOCUMENT} is larger than {DOCUMENT_BYTES_MAX // 1024} KiB")
    for file in files:
        _check_path(file.path)
    folder = PurePosixPath(called).name.removesuffix(".git")
    name = next((it for it in (head.name or "", folder) if is_name(it)), None)
    if name is None:
        raise BadSource("its name is not made of a-z, 0-9, - and _")
    return FoundSkill(name=name, head=head, place=place, files=tuple(files), left_out=tuple(left_out))


def _check_path(path: str) -> None:
    parts = path.split("/")
    odd = any(unicodedata.category(it)[0] == "C" for it in path) or "\\" in path or "\ufffd" in path
    if odd or len(path) > PATH_CHARS_MAX or any(it in ("", ".", "..") or it.lower() == ".git" for it in parts):
        raise BadSource(f"it holds a path that is not plain: {shown(path, 80)}")


def _repository(address: str, env: Mapping[str, str], ref: str, protocols: str) -> Source:
    if ref and not _REF.fullmatch(ref):
        raise BadSource(f"{shown(ref)} is no name of a branch or tag")
    if shutil.which("git", path=env.get("PATH")) is None:
        raise BadSource("git is not installed here; a plain folder can be added without it")
    with tempfile.TemporaryDirectory(prefix="clawgate-skills-") as folder:
        git = Git(Path(folder), env, protocols)
        words = ("clone", "--quiet", "--bare", "--no-local", "--depth=1", "--single-branch", "--no-tags", "--template=")
        git.run(
            *words, *((f"--branch={ref}",) if ref else ()), "--", address, "repository", bytes_max=REPOSITORY_BYTES_MAX
        )
        commit = git.inside("rev-parse", "--verify", "--end-of-options", "HEAD^{commit}").decode().strip()
        entries = _entries(git.inside("ls-tree", "-r", "-z", "-l", "--full-tree", commit, bytes_max=LISTING_BYTES_MAX))
        skills, unusable = [], {}
        for place in _places(entries):
            try:
                skills.append(_read(git, place, place or urlsplit(address).path or address, _beneath(entries, place)))
            except (BadSkill, BadSource) as error:
                unusable[place] = shown(str(error))
    return _source(address, commit, skills, unusable)


def _entries(listing: bytes) -> list[TreeEntry]:
    entries = []
    for line in filter(None, listing.split(b"\0")):
        attributes, _, path = line.partition(b"\t")
        mode, kind, oid, size = attributes.decode(errors="replace").split()
        number = int(size) if size.isdecimal() else 0 if kind == "commit" else SKILL_BYTES_MAX + 1
        entries.append(TreeEntry(mode=mode, oid=oid, size=number, path=path.decode(errors="replace")))
    return entries


def _places(entries: Iterable[TreeEntry]) -> list[str]:
    found = (it.path.removesuffix(DOCUMENT).rstrip("/") for it in entries if f"/{it.path}".endswith(f"/{DOCUMENT}"))
    places: list[str] = []
    for place in sorted(found, key=lambda it: it.count("/") + bool(it)):
        near = len(PurePosixPath(place).parts) <= DEPTH_MAX and len(places) < SKILLS_MAX
        # what is below a skill's folder belongs to it
        if near and not any(not it or place.startswith(f"{it}/") for it in places):
            places.append(place)
    return places


def _beneath(entries: Iterable[TreeEntry], place: str) -> list[TreeEntry]:
    head = f"{place}/" if place else ""
    return [
        TreeEntry(mode=it.mode, oid=it.oid, size=it.size, path=it.path.removeprefix(head))
        for it in entries
        if it.path.startswith(head)
    ]


def _read(git: Git, place: str, called: str, entries: Sequence[TreeEntry]) -> FoundSkill:
    files = [it for it in entries if it.mode in (*_FILES, *_PROGRAMS)]
    others = [it.path for it in entries if it.mode not in (*_FILES, *_PROGRAMS)]
    for path in (*(it.path for it in files), *others):
        _check_path(path)
    names = [it.path for it in files]
    folders = {str(parent) for it in names for parent in PurePosixPath(it).parents}
    if len(set(names)) < len(names) or folders & set(names):
        raise BadSource("it holds two files of one name")
    if len(files) > FILES_MAX:
        raise BadSource(f"it has {len(files):,} files, more than {FILES_MAX}")
    if (size := sum(it.size for it in files)) > SKILL_BYTES_MAX:
        raise BadSource(f"it has {size:,} bytes, more than {SKILL_BYTES_MAX:,}")
    if DOCUMENT not in names:
        raise BadSource(f"its {DOCUMENT} is a link")
    contents = git.contents(files)
    read = [
        SkillFile(path=it.path, content=content, executable=it.mode in _PROGRAMS)
        for it, content in zip(files, contents, strict=True)
    ]
    return _skill(place, called, read, others)
