"""An agent's workspace folders: one for all its chats, or one per chat or user.

`{chat}` and `{sender}` in `workspaceDir` name a folder that is created on first use. Ids map to unique names on any file
system. A new folder starts with the short files of `seeds/`, for the operator to edit; all of them are in the prompt.
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
"""Open workspaces per agent; others are reopened when needed."""
NAME_CHARS_MAX = 200
SEEDS = Path(__file__).parent / "seeds"
"""Seed folders by language."""
FILE_CHARS_MAX = 20_000
ALL_CHARS_MAX = 60_000
_BYTES_MAX = 4 * FILE_CHARS_MAX  # no character takes more than four
_ODD = re.compile(rb"[^a-z0-9_-]")

log = structlog.get_logger()


class Workspaces:
    """The workspaces of one agent. Blocking; thread-safe."""

    def __init__(self, template: str, files: FilesConfig, *, language: Language) -> None:
        """Open a shared workspace immediately, before anything can replace its folder."""
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
        """Return this session's view of the workspace, with its uploads. Private files are hidden unless
        `sees_private` or it is a direct chat with a separate workspace."""
        path = workspace_path(self._template, context) if self._is_template else self._template
        with self._lock:
            workspace = self._open.pop(path) if path in self._open else self._opened(path)
            self._open[path] = workspace
            if len(self._open) > OPEN_MAX:
                del self._open[next(iter(self._open))]  # its users keep it open
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
    """Return a sender's folder name. Each group gets another one than the direct chat: other members read along there
    and can put words into the conversation."""
    chat = (context.account, context.chat.id) if context.chat.kind == "group" else ()
    return safe_name(context.channel, context.sender.id, *chat)


def safe_name(*ids: str) -> str:
    """Return a folder name. Bytes other than lower case, digits, `_` and `-` are written as `=` and two hex digits."""
    raw = b".".join(_ODD.sub(lambda match: b"=%02x" % match[0][0], it.encode(errors="surrogatepass")) for it in ids)
    name = raw.decode()
    if len(name) <= NAME_CHARS_MAX:
        return name
    return f"{name[:100]}=={sha256(name.encode()).hexdigest()}"


def _seed(folder: int, seeds: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC  # never overwrites a file
    for seed in sorted(seeds.iterdir()):
        with suppress(OSError), os.fdopen(os.open(seed.name, flags, 0o644, dir_fd=folder), "wb") as file:
            os.fchmod(file.fileno(), 0o644)  # despite the umask: commands may run as another user
            file.write(seed.read_bytes())


def read_workspace_files(workspace: Workspace) -> Iterator[tuple[str, str]]:
    """Yield name and text of the files for this session's prompt, in order, capped with a note each and together. They
    are small and read at every turn, by descriptor: regular files with one link only, no symbolic links, and none that
    a running command may have put there. Blocking. Raises nothing."""
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
    """Return the first FILE_CHARS_MAX characters and whether there are more; nothing of an unusable file."""
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


@lru_cache(maxsize=1_024)  # log once per file
def _log_passed_over(root: Path, name: str) -> None:
    reason = "not an ordinary file, or not readable"
    log.warning("workspace_file_passed_over", folder=str(root), name=name, reason=reason)
