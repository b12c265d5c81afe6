"""The folders that an agent works in: one for all its chats, or one for each chat or each person.

`{chat}` and `{sender}` in `workspaceDir` name a folder that is made at its first use. Ids become names such that
no two share one, on any file system. A folder that is made here begins with the few short files of `seeds/`, for the
operator to write on: all of them are in the prompt.
"""

import os
import re
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import structlog

from agents.language import Language
from agents.prompt.fences import FILE_HEADINGS
from channels.message import MessageContext
from tools.command import is_absent
from tools.config import FilesConfig
from tools.encoding import decoded
from tools.workspace import Workspace, folder_of

PLACEHOLDERS = ("{chat}", "{sender}")
OPEN_MAX = 64
"""Workspaces of one agent that are kept open; any other is opened again when it is needed."""
NAME_CHARS_MAX = 200
SEEDS = Path(__file__).parent / "seeds"
"""The folders of seeds, by language."""
FILE_CHARS_MAX = 20_000
ALL_CHARS_MAX = 60_000
_BYTES_MAX = 4 * FILE_CHARS_MAX  # no character takes more than four
_ODD = re.compile(rb"[^a-z0-9_-]")

log = structlog.get_logger()


class Workspaces:
    """The workspaces of one agent. Blocking; safe to use from several threads."""

    def __init__(self, template: str, files: FilesConfig, *, language: Language) -> None:
        """The one workspace that all share is opened at once, as long as its folder is surely the one that was meant."""
        self._template = template
        self._is_template = is_template(template)
        self._files = files
        self._uploads = Path(files.uploads_dir)
        self._language: Language = language
        self._open: dict[str, Workspace] = {}
        self._lock = threading.Lock()
        if not self._is_template:
            self._open[template] = self._opened(template)

    def of(self, context: MessageContext, session: str, *, sees_private: bool = False) -> Workspace:
        """The workspace as this session sees it, with its own uploads. Files about one person only if it may see them:
        as `sees_private` says, or in a direct chat if the workspace is its own."""
        path = workspace_path(self._template, context) if self._is_template else self._template
        with self._lock:
            workspace = self._open.pop(path) if path in self._open else self._opened(path)
            self._open[path] = workspace
            if len(self._open) > OPEN_MAX:
                del self._open[next(iter(self._open))]  # who still works in it keeps it open
        sees_private = sees_private or (self._is_template and context.chat.kind == "direct")
        uploads = folder_of(self._uploads, session)
        return workspace.serving(uploads=uploads, hides_private=not sees_private)

    def close(self) -> None:
        for workspace in self._open.values():
            workspace.close()
        self._open.clear()

    def _opened(self, path: str) -> Workspace:
        root = Path(path)
        is_new = not os.path.lexists(root)
        workspace = Workspace(root=root, writable=self._files.writable, quota_bytes=self._files.quota_bytes)
        if is_new:
            _seed(workspace.fd, SEEDS / self._language)
        return workspace


def is_template(path: str) -> bool:
    return any(it in path for it in PLACEHOLDERS)


def workspace_path(template: str, context: MessageContext) -> str:
    return template.replace("{chat}", chat_name(context)).replace("{sender}", sender_name(context))


def chat_name(context: MessageContext) -> str:
    return safe_name(context.channel, context.account, context.chat.id)


def sender_name(context: MessageContext) -> str:
    """The folder of a person; in a group another than in their own chat, because others read along there and give them
    words to say."""
    chat = (context.account, context.chat.id) if context.chat.kind == "group" else ()
    return safe_name(context.channel, context.sender.id, *chat)


def safe_name(*ids: str) -> str:
    """A folder's name: what is neither lower case, digit, `_` nor `-` is written as `=` and two hex digits a byte."""
    raw = b".".join(_ODD.sub(lambda match: b"=%02x" % match[0][0], it.encode(errors="surrogatepass")) for it in ids)
    name = raw.decode()
    if len(name) <= NAME_CHARS_MAX:
        return name
    return f"{name[:100]}=={sha256(name.encode()).hexdigest()}"


def _seed(folder: int, seeds: Path) -> None:
    """Writes the seeds; overwrites nothing, and leaves out what cannot be written: an agent works without."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for seed in sorted(seeds.iterdir()):
        with suppress(OSError), os.fdopen(os.open(seed.name, flags, 0o644, dir_fd=folder), "wb") as file:
            os.fchmod(file.fileno(), 0o644)  # whatever the umask: commands may be another user's
            file.write(seed.read_bytes())


def read_workspace_files(workspace: Workspace) -> Iterator[tuple[str, str]]:
    """Name and text of the documents that go into this session's prompt, in their order, each and all together capped with
    a note. They are small, so they are read at every turn: by descriptor, through no link, ordinary files with one name
    only, and none that a running command may have put there. Blocking. Raises nothing."""
    left = ALL_CHARS_MAX
    for name in FILE_HEADINGS:
        if workspace.hides(name):
            continue
        whole, cut = _text(workspace, name)
        if is_absent(workspace.fd, name):
            continue
        text = whole[:left]
        left -= len(text)
        if whole and (cut or len(text) < len(whole)):
            words = f"{text}\n\n[Cut here: {name} is longer than what is shown; `read` shows the rest.]" if text else ""
            yield name, words or f"[Not shown: these files together exceed {ALL_CHARS_MAX:,} characters.]"
        elif whole:
            yield name, text


def _text(workspace: Workspace, name: str) -> tuple[str, bool]:
    """The first FILE_CHARS_MAX characters, and whether there were more; nothing of a file that cannot be used."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=workspace.fd)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                raise OSError("not an ordinary file under one name")
            data = os.read(fd, _BYTES_MAX + 1)
        finally:
            os.close(fd)
    except FileNotFoundError:
        return "", False
    except OSError:
        _log_passed_over(workspace.root, name)
        return "", False
    text = decoded(data).strip()
    return text[:FILE_CHARS_MAX], len(text) > FILE_CHARS_MAX or len(data) > _BYTES_MAX


@lru_cache(maxsize=1_024)
def _log_passed_over(root: Path, name: str) -> None:
    """Logs once for each file."""
    reason = "not an ordinary file, or not readable"
    log.warning("workspace_file_passed_over", folder=str(root), name=name, reason=reason)
