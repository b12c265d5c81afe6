"""The command that tries a wall from inside: it does what it must not, and ends with a code that says what it could."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from tools.config import ExecConfig
from tools.process import run
from tools.sandbox.launch import Launch, owner_of
from tools.web.client import WebClient
from tools.web.config import FetchConfig
from tools.workspace import Workspace

_BOUNDS = ExecConfig.model_validate({"timeoutSeconds": 10.0})
_CANARY = """
echo made > made && [ "$(cat made)" = made ] || exit 10
for file in {files}; do cat "$file" >/dev/null 2>&1 && exit 11; done
(kill -9 {victim}) 2>/dev/null
(: < /proc/{gateway}/environ) 2>/dev/null && [ {gateway} -gt 20 ] && exit 12
for fd in /proc/self/fd/*; do case "$fd" in */[012]) ;; *) [ -e "$fd" ] && exit 14 ;; esac; done
if command -v python3; then
  python3 -c '{knocks}' {udp} {tcp} "{unix}" "{abstract}"; [ $? != 14 ] || exit 14
elif command -v bash; then
  bash -c 'for n in {{3..255}}; do : <&$n && exit 14; done; exit 0' || exit 14
  bash -c 'echo > /dev/tcp/127.0.0.1/{tcp}'; bash -c 'echo > /dev/udp/127.0.0.1/{udp}'
else
  echo | nc -w 1 127.0.0.1 {tcp}; echo | nc -w 1 -u 127.0.0.1 {udp}
fi >/dev/null 2>&1
exit 0
"""
_KNOCKS = """
import os, socket, sys
udp, tcp, path, name = sys.argv[1:]
for family, kind, address in (
    (2, 2, ("127.0.0.1", int(udp))), (2, 1, ("127.0.0.1", int(tcp))), (1, 1, path), (1, 1, chr(0) + name)
):
    try:
        with socket.socket(family, kind) as knocking:
            knocking.settimeout(1)
            knocking.connect(address)
            knocking.send(b"x")
    except OSError:
        pass
for fd in range(3, 256):
    try:
        os.fstat(fd)
    except OSError:
        continue
    os._exit(14)
"""
_PROXIED = """
ask="CONNECT 127.0.0.1:{tcp} HTTP/1.1"
if command -v bash; then
  answer=$(bash -c 'exec 3<>/dev/tcp/127.0.0.1/3128; printf "%s\\r\\n\\r\\n" "$0" >&3; head -n 1 <&3' "$ask")
elif command -v curl; then answer=$(curl -si -x 127.0.0.1:3128 -p http://127.0.0.1:{tcp})
else answer=$(printf "%s\\r\\n\\r\\n" "$ask" | nc -w 5 127.0.0.1 3128)
fi >/dev/null 2>&1
case "$answer" in *" 403 "*) ;; *) exit 13 ;; esac
"""
_PIERCED = {
    10: "it cannot write its workspace",
    11: "it reads files of ours",
    12: "it sees our processes",
    13: "it has no way to the network",
    14: "it holds descriptors of ours",
}


def _planted(folder: Path) -> Path:
    folder.chmod(0o711)
    planted = folder / "planted"
    planted.write_text("planted")
    return planted


def _bound(leaving: ExitStack, address: str) -> socket.socket:
    listening = leaving.enter_context(socket.socket(socket.AF_UNIX))
    listening.bind(address)
    if not address.startswith("\0"):
        Path(address).chmod(0o777)
    listening.listen()
    return listening


async def probe_failure(launch: Callable[..., Launch], private: Sequence[Path], *, opens: bool) -> str | None:
    """The reason why confinement fails, or None: `launch` starts a command behind the wall."""
    with ExitStack() as leaving:
        folder = Path(tempfile.mkdtemp(prefix="clawgate-probe-"))
        leaving.callback(shutil.rmtree, folder, ignore_errors=True)
        planted = _planted(folder)
        workspace = Workspace(root=folder / "workspace")
        leaving.callback(workspace.close)
        tcp = leaving.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = leaving.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        names = {"unix": str(folder / "socket"), "abstract": folder.name}
        listening = [tcp, *(_bound(leaving, it) for it in (names["unix"], f"\0{names['abstract']}"))]
        for it in (udp, *listening):
            it.setblocking(False)
        uid = (owner_of(workspace) or (None,))[0]
        # `cat` exits on EOF, so with us, and it has no inherited descriptors.
        nowhere = subprocess.DEVNULL
        victim = subprocess.Popen(  # noqa: ASYNC220 - a millisecond
            ["/bin/cat"], stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, user=uid, env={}
        )
        leaving.enter_context(victim)
        leaving.callback(victim.kill)
        files = " ".join(f"'{it}'" for it in (planted, *private) if it.is_file() and "'" not in str(it))
        ports = {"tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1]}
        network = WebClient(FetchConfig(ports=(ports["tcp"],))) if opens else None
        command = (_PROXIED if opens else "") + _CANARY
        command = command.format(files=files, victim=victim.pid, gateway=os.getpid(), knocks=_KNOCKS, **ports, **names)
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(workspace.root), "TMPDIR": "/tmp"}
        try:
            launched = launch(command, workspace, environment, network)
            finished = await run(launched, folder=workspace.fd, bounds=_BOUNDS)
        except OSError as error:
            return str(error)
        if finished.limit is not None or finished.code != 0:
            return _PIERCED.get(finished.code, f"its test ended with {finished.code}: {finished.output.shown(200)}")
        for it in (udp, *listening):
            with suppress(BlockingIOError):
                it.recv(1) if it is udp else it.accept()[0].close()
                return "it reaches this machine's ports" if it in (udp, tcp) else "it reaches this machine's sockets"
        return "it reaches other processes" if victim.poll() is not None else None
