"""The errors of a store, and the channel by which workers of a shared database wake each other."""

import errno
import shutil
import sqlite3
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from channels.bilingual import Bilingual, Outage

NOTIFY_CHANNEL = "clawgate"
"""The channel on which the workers of a shared database wake each other."""
ROOM_BYTES_MIN = 256 * 1024
"""A disk with less free space is full: SQLite reports some failed writes as disk errors."""

DatabaseFault: TypeAlias = Literal["full", "disk", "read-only", "locked", "gone", "slow", "damaged", "broken"]
"""The reason that a database rejects writes; `broken` is any other one."""

FAULTS: Collection[DatabaseFault] = get_args(DatabaseFault)
_REASONS: Mapping[DatabaseFault, Bilingual] = {
    "full": Bilingual("the gateway's disk is full", "网关的磁盘已满"),
    "disk": Bilingual(
        "the gateway's disk does not take what is written (a used-up quota, or a failing disk)",
        "网关的磁盘无法写入（配额用完，或磁盘故障）",
    ),
    "read-only": Bilingual("the gateway's database is read-only", "网关的数据库是只读的"),
    "locked": Bilingual(
        "another program holds the database (a backup, a SQLite browser)",
        "另一个程序占用着数据库（备份程序或 SQLite 浏览器）",
    ),
    "gone": Bilingual("the gateway cannot reach its database", "网关连接不上数据库"),
    "slow": Bilingual("the gateway's database answers too slowly", "网关的数据库响应太慢"),
    "damaged": Bilingual(
        "the gateway's database file is damaged, or not a database", "网关的数据库文件已损坏，或不是数据库"
    ),
    "broken": Bilingual("the gateway's database has failed", "网关的数据库出现故障"),
}
_FIXES: Mapping[DatabaseFault, Bilingual] = {
    "full": Bilingual(
        "make room on the disk of {at}; the gateway continues by itself", "请为 {at} 所在的磁盘腾出空间，网关会自动恢复"
    ),
    "disk": Bilingual(
        "see the quota on the disk of {at}, and the kernel's log; the gateway continues by itself",
        "请检查 {at} 所在磁盘的配额和内核日志，网关会自动恢复",
    ),
    "read-only": Bilingual(
        "make {at} and its folder writable for the gateway's user; the gateway continues by itself (database.url)",
        "请让网关的用户可以写入 {at} 及其文件夹，网关会自动恢复（database.url）",
    ),
    "locked": Bilingual(
        "the gateway continues when it is released; `fuser {at}` names the program",
        "释放后网关会自动恢复；`fuser {at}` 可查出是哪个程序",
    ),
    "gone": Bilingual(
        "is the server of {at} running and reachable from this machine, and database.url right?",
        "{at} 的服务器是否在运行？本机能否连接？database.url 是否正确？",
    ),
    "slow": Bilingual(
        "look at the load of the machine and the disk behind {at}; the gateway continues by itself",
        "请检查 {at} 所在机器和磁盘的负载，网关会自动恢复",
    ),
    "damaged": Bilingual(
        "restore a backup of {at} (docs/upgrade.md), unless database.url names a file that is none of ours",
        "请用备份恢复 {at}（docs/upgrade.md）；也请检查 database.url 是否指向了其他文件",
    ),
    "broken": Bilingual("see the gateway's log, and run doctor", "请查看网关日志，并运行 doctor"),
}
_GONE_FILE = Bilingual(
    "put {at} back and let the gateway's user into its folder, then restart the gateway (database.url)",
    "请放回 {at} 并允许网关的用户进入其文件夹，然后重启网关（database.url）",
)
_OF_SQLITE: Mapping[int, DatabaseFault] = {
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_READONLY: "read-only",
    sqlite3.SQLITE_IOERR: "disk",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_NOTADB: "damaged",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_CANTOPEN: "gone",
}
"""The faults by SQLite's primary result code, the lowest byte of an extended code."""
_OF_POSTGRESQL: Mapping[str, DatabaseFault] = {
    "53100": "full",
    "58030": "disk",
    "25006": "read-only",
    "55P03": "slow",
    "57014": "slow",
    "57P01": "gone",
    "57P02": "gone",
    "57P03": "gone",
    "53300": "gone",
    "XX001": "damaged",
}
_OF_SYSTEM: Mapping[int, DatabaseFault] = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "disk",
    errno.EIO: "disk",
    errno.EROFS: "read-only",
    errno.EACCES: "read-only",
    errno.EPERM: "read-only",
    errno.ENOENT: "gone",
}


class StoreUnavailable(Exception):
    """The database rejected the write; `fault` says why. Nothing was stored."""

    def __init__(self, reason: str, fault: DatabaseFault = "broken") -> None:
        super().__init__(reason)
        self.fault: DatabaseFault = fault


class Fenced(Exception):
    """This worker no longer owns the session; its owner continues the work."""


class Revised(Fenced):
    """The conversation was revised since it was read, or the turn was stopped: it continues from the database."""


def outage_of(fault: DatabaseFault, at: str) -> Outage:
    """Return the reason and the next step; `at` names the database for the operator."""
    fix = _GONE_FILE if fault == "gone" and "://" not in at else _FIXES[fault]
    return Outage(fault, _REASONS[fault], fix.each(lambda it: it.replace("{at}", at)))


def fault_of(error: BaseException, file: str | None = None) -> DatabaseFault:
    """Return the fault behind an error of a driver or of SQLAlchemy; `file` is the SQLite database."""
    error = getattr(error, "orig", None) or error
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", None) or sqlite3.SQLITE_ERROR
        if code == sqlite3.SQLITE_READONLY_DBMOVED:
            return "gone"
        fault = _OF_SQLITE.get(code & 0xFF, "broken")
    elif isinstance(error, OSError):
        fault = _OF_SYSTEM.get(error.errno or 0, "broken")
    else:
        state = str(getattr(error, "sqlstate", None) or "")
        is_lost = not state or state.startswith("08")
        lost: DatabaseFault = "gone" if type(error).__name__ in ("OperationalError", "InterfaceError") else "broken"
        fault = lost if is_lost else _OF_POSTGRESQL.get(state, "broken")
    return "full" if fault in ("disk", "gone") and file and not _has_room(file) else fault


def _has_room(file: str) -> bool:
    try:
        return shutil.disk_usage(Path(file).parent).free >= ROOM_BYTES_MIN
    except OSError:
        return True
