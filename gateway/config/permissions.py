"""Warnings of what others on this machine can read or write: the config, its secrets, and the folders with people's data."""

import grp
import os
import pwd
import stat
from collections.abc import Mapping
from pathlib import Path

from channels.bilingual import Bilingual
from gateway.config.problems import Key, Warned, keyed
from gateway.config.root import Config
from gateway.observe.secrets import secrets_in


def inline_secrets(config: Config, file: Path, names: Mapping[Key, tuple[str, ...]]) -> Warned:
    """Warns of secrets written in a file that others can read."""
    if file.stat().st_mode & 0o077:
        for key, secret in secrets_in(config):
            # A token alone stands for the mapping that it is a key of.
            if secret.strip() and not {key, key[:-1]} & names.keys():
                message = Bilingual("a secret in a file that others can read", "密钥写在他人可以读取的文件中")
                fix = Bilingual("use ${NAME}, or chmod 600 the file", "请改用 ${NAME}，或对文件执行 chmod 600")
                yield key, keyed(key, message), fix


def writable(file: Path) -> Warned:
    """Warns if others may write the config, its folder or its `.env`: an edit is in force two seconds later."""
    for path in (file, file.parent / ".env", file.parent):
        try:
            status = path.stat()
        except OSError:
            continue
        by_group = status.st_mode & stat.S_IWGRP and not _own_group(status)
        if status.st_mode & stat.S_IWOTH or by_group:
            message = Bilingual(
                f"{path}: others on this machine can write it, and so decide what runs here",
                f"{path}：本机的其他用户可以写入，从而决定这里运行什么",
            )
            yield (), message, Bilingual("chmod go-w it", "请执行 chmod go-w")


def _own_group(status: os.stat_result) -> bool:
    """True if its group is the owner's alone, as many systems make one for each user."""
    try:
        return pwd.getpwuid(status.st_uid).pw_name == grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        return status.st_uid == status.st_gid


def open_folders(config: Config) -> Warned:
    """Folders with people's data that others on this machine can read or change. Folders that we make are private."""
    database = [Path(config.database.path).parent] if config.database.path else []
    kept = (*database, Path(config.tools.files.uploads_dir), *(Path(it.workspace_dir) for it in config.agents.list))
    for folder in dict.fromkeys(kept):
        if folder.is_dir() and folder.stat().st_mode & 0o066:
            message = Bilingual(f"{folder}: can be read by others on this machine", f"{folder}：可被本机的其他用户读取")
            yield (), message, Bilingual("chmod 700 it", "请执行 chmod 700")
