"""Kernel confinement of a command: system calls by seccomp, files and signals by Landlock; and its mounts, which need
root.

The supervisor runs this in the command's own process, between fork and exec; it imports nothing of ours. Landlock has
no "all but": what is not listed is closed, and what is listed is open as a whole.
"""

import ctypes
import fcntl
import os
import struct
from collections.abc import Mapping, Sequence

_libc = ctypes.CDLL(None, use_errno=True)
STAGE = "/mnt"
"""Mount point of a command's folders, for it alone: bubblewrap's user may not pass the folders above them."""

_IS_ARM = os.uname().machine == "aarch64"
_AUDIT_ARCH = 0xC00000B7 if _IS_ARM else 0xC000003E
_X32 = 0x4000_0000
_EPERM, _ENOSYS = 1, 38

_DENIED = {  # system call: its numbers on x86_64 and on aarch64
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "unshare": (272, 97), "setns": (308, 268),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "bpf": (321, 280), "userfaultfd": (323, 282), "perf_event_open": (298, 241),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "fanotify_init": (300, 262),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "syslog": (103, 116),
    "acct": (163, 89), "quotactl": (179, 60), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "sethostname": (170, 161),
    "setdomainname": (171, 162), "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None),
    # Memory that no process maps, and no limit counts.
    "shmget": (29, 194), "memfd_secret": (447, 447),
}  # fmt: skip
_MISSING = {
    "clone3": (435, 435), "memfd_create": (319, 279), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}  # fmt: skip
"""Answered as by an older kernel, so that programs fall back. The arguments of `clone3` cannot be checked here."""
_CLONE, _IOCTL, _SOCKET, _TRUNCATE = (56, 220), (16, 29), (41, 198), (76, 45)
_SIGNALS = {"kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "pidfd_open": (434, 434)}
_PIDFD_SEND_SIGNAL, _RT_SIGQUEUEINFO, _RT_TGSIGQUEUEINFO = (424, 424), (129, 138), (297, 240)
_NEW_NAMESPACES = 0x7E02_0000
_TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: they type into another program's terminal."""
_FAMILIES = (1, 2, 10, 16)
"""Socket families in a separate network namespace: UNIX, IPv4, IPv6, netlink. Not VSOCK, which knows no namespaces."""

_LOAD, _JUMP_EQUAL, _JUMP_ANY, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF_0000, 0x8000_0000, 0x0005_0000


def seccomp(families: Sequence[int] = _FAMILIES, spared: Sequence[int] = (), *, truncates: bool = True) -> bytes:
    """Build the filter in the kernel's format. Only sockets of these `families` are allowed; signals to `spared`
    processes are denied; without `truncates`, `truncate` is denied, since the kernel's Landlock does not cover it."""
    at = 1 if _IS_ARM else 0
    steps = [(_LOAD, 0, 0, 4), (_JUMP_EQUAL, 1, 0, _AUDIT_ARCH), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    if not _IS_ARM:
        steps += [(_JUMP_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _ERROR | _ENOSYS)]
    denied = [*_DENIED.values(), *(() if truncates else (_TRUNCATE,))]
    if spared:
        denied += [_PIDFD_SEND_SIGNAL, _RT_SIGQUEUEINFO, _RT_TGSIGQUEUEINFO]
    for numbers, code in (*((it, _EPERM) for it in denied), *((it, _ENOSYS) for it in _MISSING.values())):
        if (number := numbers[at]) is not None:
            steps += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERROR | code)]
    steps += _judged(_CLONE[at], 0, [(_JUMP_ANY, _NEW_NAMESPACES)])
    steps += _judged(_IOCTL[at], 1, [(_JUMP_EQUAL, it) for it in _TERMINAL_INPUT])
    steps += _judged(_SOCKET[at], 0, [(_JUMP_EQUAL, it) for it in families], others=_ERROR | _EPERM, matched=_ALLOW)
    for numbers in _SIGNALS.values() if spared else ():
        steps += _judged(numbers[at], 0, [(_JUMP_EQUAL, it & 0xFFFF_FFFF) for it in spared])
    return b"".join(struct.pack("HBBI", *it) for it in (*steps, (_RETURN, 0, 0, _ALLOW)))


def _judged(
    number: int, argument: int, tests: list[tuple[int, int]], *, matched: int = _ERROR | _EPERM, others: int = _ALLOW
) -> list[tuple[int, int, int, int]]:
    body = [(_LOAD, 0, 0, 16 + 8 * argument)]  # the lower half
    for test, value in tests:
        body += [(test, 0, 1, value), (_RETURN, 0, 0, matched)]
    body.append((_RETURN, 0, 0, others))
    return [(_JUMP_EQUAL, 0, len(body), number), *body]


_FILES, _READ = 0b111 | 3 << 14, 0b1101
"""Rights for files; rights to read a folder and to run what is in it."""
_ALL_RIGHTS = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF}
_NET_SINCE, _SCOPES_SINCE, _TRUNCATE_SINCE = 4, 6, 3


def landlock_version() -> int:
    """Return the kernel's version of Landlock; 0 if it has none."""
    return max(0, int(_libc.syscall(444, None, ctypes.c_size_t(0), 1)))


def prepare(rules: Mapping[str, Sequence[str | int]]) -> int:
    """Create a ruleset. `read` and `write` list paths or descriptors; the descriptors are closed. Raises OSError."""
    version = landlock_version()
    rights = _ALL_RIGHTS.get(min(version, 5), 0)
    tcp = 0b11 if version >= _NET_SINCE else 0
    scopes = 0b11 if version >= _SCOPES_SINCE else 0
    attributes = struct.pack("QQQ", rights, tcp, scopes)
    size = 24 if version >= _SCOPES_SINCE else 16 if version >= _NET_SINCE else 8
    ruleset = _checked(_libc.syscall(444, attributes, ctypes.c_size_t(size), 0))
    for what, access in (("read", _READ), ("write", rights)):
        for place in rules[what]:
            try:
                fd = place if isinstance(place, int) else os.open(place, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue  # not every system has every folder
            is_folder = os.fstat(fd).st_mode & 0o170000 == 0o040000
            allowed = access if is_folder else access & _FILES
            _checked(_libc.syscall(445, ruleset, 1, struct.pack("=Qi", allowed & rights, fd), 0))
            os.close(fd)
    return ruleset


def restrict(ruleset: int, spared: Sequence[int]) -> None:
    """Confine this process and its children. Raises OSError."""
    version = landlock_version()
    _checked(_libc.prctl(38, 1, 0, 0, 0))  # no_new_privs: without it the kernel takes no filter
    _checked(_libc.syscall(446, ruleset, 0))
    os.close(ruleset)
    program = seccomp((), spared, truncates=version >= _TRUNCATE_SINCE)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    _checked(_libc.prctl(22, 2, header, 0, 0))


def keep_to_itself() -> None:
    """Let this process and its descendants signal and trace each other only: not the supervisor, the gateway or another
    command, which may share the uid. Uses Landlock, from Linux 6.12; on an older kernel this does nothing."""
    if landlock_version() >= _SCOPES_SINCE:
        ruleset = _checked(_libc.syscall(444, struct.pack("QQQ", 0, 0, 2), ctypes.c_size_t(24), 0))
        _checked(_libc.syscall(446, ruleset, 0))
        os.close(ruleset)


def stage(fds: Sequence[int]) -> None:
    """Mount these folders and files below STAGE, for this process and its children, and close their descriptors: by
    `..` they lead out of every mount namespace. Needs root. Raises OSError."""
    empty, clone, recursive = 0x1000, 1, 0x8000
    trees = [_checked(_libc.syscall(428, fd, b"", clone | empty | recursive | os.O_CLOEXEC)) for fd in fds]
    _checked(_libc.unshare(0x0002_0000))
    _checked(_libc.mount(b"none", b"/", None, 0x8_4000, None))  # private, recursively: no other process sees it
    _checked(_libc.mount(b"tmpfs", STAGE.encode(), b"tmpfs", 0, b"mode=0755,size=64k"))
    for fd, tree in zip(fds, trees, strict=True):
        place = f"{STAGE}/{fd}"
        if os.fstat(fd).st_mode & 0o170000 == 0o040000:
            os.mkdir(place)  # noqa: PTH102 - pathlib would double the start-up time
        else:
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY))
        _checked(_libc.syscall(429, tree, b"", -100, place.encode(), 4))
        os.close(tree)
        os.close(fd)


def open_loopback(channel: int, port: int) -> None:
    """Enter a network namespace with only a loopback, and send a socket that listens there through `channel`. Raises
    OSError."""
    import socket  # only here: it takes longer than all the rest

    uid, gid = os.getuid(), os.getgid()
    _checked(_libc.prctl(4, 1, 0, 0, 0))  # dumpable again: /proc/self is root's for who was root a moment ago
    _checked(_libc.unshare(0x5000_0000))  # a user namespace, which owns the one of the network
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        file = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(file, text.encode())
        os.close(file)
    with socket.socket() as listening, socket.socket(fileno=channel) as sending:
        fcntl.ioctl(listening, 0x8914, struct.pack("16sH14x", b"lo", 1))  # SIOCSIFFLAGS: up
        listening.bind(("127.0.0.1", port))
        listening.listen()
        socket.send_fds(sending, [b"L"], [listening.fileno()])


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)
