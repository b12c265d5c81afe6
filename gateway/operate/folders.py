"""The folders that a gateway writes, as `doctor` finds them: who may write and read there, and how much room is left."""

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from channels.bilingual import NO_WORDS, Bilingual, Finding, Status
from gateway.config.exposure import sandboxed
from gateway.config.load import Loaded
from tools.supervisor import allowed
from tools.workspace import NOBODY

FREE_BYTES_LOW = 1024**3
FREE_BYTES_MIN = 100 * 1024**2


def _folders(loaded: Loaded) -> dict[Path, Bilingual]:
    """The folders that are written while it serves, each with its owner; for a workspace of each chat, their parent."""
    config = loaded.config
    database = Path(config.database.path).parent if config.database.path else None
    folders = {database: Bilingual("the database", "数据库")} if database else {}
    folders[Path(config.tools.files.uploads_dir)] = Bilingual("uploads", "上传的文件")
    for agent in config.agents.list:
        workspace = Bilingual(f"the workspace of {agent.id}", f"{agent.id} 的工作目录")
        folders.setdefault(Path(agent.workspace_dir.partition("{")[0]), workspace)
    return folders


def _existing_parent(folder: Path) -> Path:
    """The folder, or the nearest parent that exists."""
    return next(it for it in (folder, *folder.parents) if it.exists())


def writable(loaded: Loaded) -> list[Finding]:
    """One for each folder, and one for each workspace that the commands of a root gateway cannot read."""
    findings = []
    for folder, whose in _folders(loaded).items():
        try:
            with tempfile.TemporaryFile(dir=_existing_parent(folder)):  # nameless if the file system can
                pass
            message = Bilingual(f"{whose}: {folder} can be written", f"{whose.zh}：{folder} 可以写入")
            findings.append(Finding("folders", "ok", message))
        except OSError as error:
            fix = Bilingual(
                f"let uid {os.geteuid()} write there (chown, chmod 700), or name another folder",
                f"请让 uid {os.geteuid()} 可以写入（chown、chmod 700），或换一个文件夹",
            )
            message = Bilingual(
                f"{whose}: {folder} cannot be written ({error.strerror})",
                f"{whose.zh}：{folder} 无法写入（{error.strerror}）",
            )
            findings.append(Finding("folders", "error", message, fix))
    for id_ in sandboxed(loaded.config):
        folder = next(Path(it.workspace_dir) for it in loaded.config.agents.list if it.id == id_)
        if os.geteuid() == 0 and folder.is_dir():
            findings += _closed(id_, folder)
    return findings


def _closed(agent: str, folder: Path) -> list[Finding]:
    """Names what a root gateway's commands cannot read: they run as the workspace's owner, or as `nobody` for root's."""
    status = folder.stat()
    uid, gid = status.st_uid or NOBODY, status.st_gid or NOBODY
    statuses = {it.name: it.stat(follow_symlinks=False) for it in os.scandir(folder)}
    closed = [
        name
        for name, it in {**statuses, ".": status}.items()
        if not (name == "." and not it.st_uid)  # that one is given to them at the start
        and not allowed(it.st_mode, it.st_uid, it.st_gid, uid, gid) & (1 if stat.S_ISDIR(it.st_mode) else 4)
    ]
    names = ", ".join(sorted(closed)[:5]) + (f" and {len(closed) - 5} more" if len(closed) > 5 else "")
    fix = Bilingual(
        f"chown -R {uid}:{gid} {folder}, and chmod -R u+rwX {folder}",
        f"请执行 chown -R {uid}:{gid} {folder} 和 chmod -R u+rwX {folder}",
    )
    message = Bilingual(
        f"commands of {agent} run as uid {uid}, which cannot read in {folder}: {names}",
        f"{agent} 的命令以 uid {uid} 运行，无法读取 {folder} 中的 {names}",
    )
    return [Finding("folders", "warning", message, fix)] if closed else []


def room(loaded: Loaded, free: Callable[[Path], int]) -> list[Finding]:
    """One for each file system; `free` gives its free bytes."""
    disks: dict[int, Finding] = {}
    for folder, whose in _folders(loaded).items():
        place = _existing_parent(folder)
        left = free(place)
        status: Status = "error" if left < FREE_BYTES_MIN else "warning" if left < FREE_BYTES_LOW else "ok"
        step = Bilingual(
            "make room: on a full disk nothing is accepted any more", "请腾出空间：磁盘满后将无法接收任何消息"
        )
        fix = NO_WORDS if status == "ok" else step
        size = f"{left / 1024**3:.1f} GiB"
        message = Bilingual(f"{size} free for {whose} ({place})", f"{whose.zh}可用空间 {size}（{place}）")
        disks.setdefault(place.stat().st_dev, Finding("disk", status, message, fix))
    return [*disks.values()]
