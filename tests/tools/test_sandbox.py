"""What a command in a sandbox must not be able to do, in each kind that this machine has, as root and as a user."""

import asyncio
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from tests import warm
from tests.processes import processes_of
from tests.running import client, running
from tests.sandboxes import WALLS
from tests.tools.bench import bench, text_of
from tests.tools.confined import SYSTEM_PYTHON
from tests.tools.hostile import certified, response, web
from tests.waiting import PATIENCE_SECONDS, until
from tools.sandbox import sandbox as bubblewrap
from tools.sandbox import sandbox as sandboxes
from tools.sandbox.confine import seccomp
from tools.sandbox.launch import SCRATCH, Launch
from tools.sandbox.sandbox import KINDS, ProbeReport, Sandbox, Wall, WallKind

NAP = f"sleep {8_000_000 + os.getpid()}"
SECRET = "CANARY-5471"
UIDS = (0, 65534) if os.geteuid() == 0 else (os.geteuid(),)

_ATTACKS = """
import ctypes, mmap, os, socket, sys
victim, tcp, udp, folder, name = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
libc = ctypes.CDLL(None, use_errno=True)
def attack(what, do):
    try:
        if do() not in (-1, None):
            print("OPEN", what)
    except OSError:
        pass
def reach(family, kind, address):
    s = socket.socket(family, kind)
    s.settimeout(1)
    s.connect(address)
    s.send(b"x")
    return 1
attack("tcp", lambda: reach(2, 1, ("127.0.0.1", tcp)))
attack("udp", lambda: reach(2, 2, ("127.0.0.1", udp)) and None)
attack("outside", lambda: reach(2, 2, ("192.0.2.1", 53)))
attack("abstract", lambda: reach(1, 1, "\\0" + name))
attack("unix", lambda: reach(1, 1, folder + "/socket"))
attack("vsock", lambda: socket.socket(40, 1).fileno())
attack("raw packets", lambda: socket.socket(17, 3).fileno())
attack("kill", lambda: os.kill(victim, 9) or 1)
attack("ptrace", lambda: libc.ptrace(16, victim, 0, 0))
attack("unshare", lambda: libc.unshare(0x10000000))
attack("mount", lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, None))
for what, number in dict(bpf=321, userfaultfd=323, keyctl=250, io_uring=425, memfd=319, setns=308, shmget=29).items():
    if os.uname().machine == "x86_64":
        attack(what, lambda: libc.syscall(number, 0, 4096, 0o1600, 0, 0))
attack("typing", lambda: __import__("fcntl").ioctl(0, 0x5412, b"x") and 1)
def walk(fd):
    print("OPEN descriptor", fd)
    attack("the folder above a descriptor", lambda: os.open("../" * 30, os.O_RDONLY, dir_fd=fd))
    attack("a socket by a descriptor", lambda: os.fchdir(os.open("../" * 30, os.O_RDONLY, dir_fd=fd)) or
           reach(1, 1, folder[1:] + "/socket"))
for fd in range(3, 1024):
    try:
        os.fstat(fd)
    except OSError:
        continue
    walk(fd)
for process in map(str, range(1, 100)):
    try:
        held = [(it, os.readlink(f"/proc/{process}/fd/{it}")) for it in os.listdir(f"/proc/{process}/fd")]
    except OSError:
        continue
    for fd, target in held:
        if int(fd) > 2 and target.startswith("/") and not target.startswith("/proc/"):
            print("OPEN", target, "by process", process)
"""
_HOG = "import mmap\nm = mmap.mmap(-1, 3 << 30)\nfor at in range(0, 3 << 30, 4096): m[at] = 1\nprint('HELD')"


@dataclass
class Outside:
    """What a command could be after."""

    folder: Path
    victim: "subprocess.Popen[bytes]"
    tcp: socket.socket
    udp: socket.socket
    name: str

    async def asked(
        self, kind: WallKind, uid: int, *commands: str | dict[str, Any], config: dict[str, object] | None = None
    ) -> list[str]:
        script = (self.folder.parent / "attacks.py").read_text()
        attacks = f"cat > a.py <<'EOF'\n{script}\nEOF\n{SYSTEM_PYTHON} a.py {self.numbers}"
        names = {"OUT": str(self.folder), "ATTACKS": json.dumps(attacks)[1:-1]}
        written = re.sub("OUT|ATTACKS", lambda it: names[it[0]], json.dumps(commands))
        work = self.folder.parent / "work"
        for name in ("workspace/.git", "another", "uploads/a", "uploads/b"):
            (work / name).mkdir(parents=True)
        for name in (".env", "AGENTS.md", ".git/config"):
            (work / "workspace" / name).write_text("kept")
        (work / "uploads/a/sent").write_text("sent")
        for name in ("another/secret", "uploads/b/secret"):
            (work / name).write_text(SECRET)
        for path in (work, *work.rglob("*")):
            os.chown(path, uid or 65534, uid or 65534)
        arguments = [kind, str(uid), str(work), str(self.folder.parent / "greet"), written, json.dumps(config or {})]
        env = {**os.environ, "TOKEN": SECRET}
        process = await warm.start("tests.tools.confined", *arguments, env=env, stdout=PIPE, stderr=PIPE)
        output, errors = map(bytes.decode, await process.communicate())
        assert process.returncode in (0, -signal.SIGKILL), output + errors
        probed, *results = json.loads(output.splitlines()[-1])
        if probed != kind and (config or {}).get("sandbox") != "off":
            pytest.skip(f"this machine: {probed}")
        return list(map(str, results))

    @property
    def numbers(self) -> str:
        ports = f"{self.tcp.getsockname()[1]} {self.udp.getsockname()[1]}"
        return f"{self.victim.pid} {ports} {self.folder} {self.name}"


@pytest.fixture(params=UIDS, ids=lambda uid: f"uid {uid}")
def uid(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def outside(uid: int) -> Iterator[Outside]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # pytest's own are root's alone
        Path(folder).chmod(0o711)
        yield from _outside(Path(folder), uid)


def _outside(tmp_path: Path, uid: int) -> Iterator[Outside]:
    (tmp_path / "attacks.py").write_text(_ATTACKS)
    (tmp_path / "greet").mkdir()
    (tmp_path / "greet/run.sh").write_text("echo a shared skill")
    folder = tmp_path / "outside"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "secret").write_text(SECRET)
    os.chown(folder / "secret", uid or 65534, uid or 65534)
    name = f"clawgate-test-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as unix,
        subprocess.Popen(["sleep", "300"], user=uid or 65534, env={"TOKEN": SECRET}) as victim,
    ):
        udp.bind(("127.0.0.1", 0))
        abstract.bind(f"\0{name}")
        unix.bind(str(folder / "socket"))
        (folder / "socket").chmod(0o777)
        abstract.listen()
        unix.listen()
        yield Outside(folder, victim, tcp, udp, name)
        assert victim.poll() is None
        victim.kill()


FILES = (
    "cat OUT/secret ../../outside/secret ../another/secret ../uploads/b/secret $UPLOADS/../b/secret; ls ../*; "
    " ln -s OUT/secret l; cat l; ln OUT/secret h && cat h; cat /etc/passwd /etc/shadow; "
    "cat /proc/*/environ /proc/*/root/OUT/secret; env; ls OUT; echo x > OUT/new; touch /x /dev/x /etc/x; true"
)
PROTECTED = (
    "echo bad > .env; rm -f .env; echo bad > .git/config; echo bad > .bashrc; mkdir -p .ssh .git/hooks skills/evil; "
    "echo bad > .git/hooks/pre-commit; echo bad > skills/evil/SKILL.md; ln -s OUT .gitmodules; true"
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.skipif(not which(SYSTEM_PYTHON), reason="needs a system Python for the attacks")
async def test_a_command_in_a_sandbox_reaches_nothing_of_ours(outside: Outside, kind: WallKind, uid: int) -> None:
    files, attacks, own, skill, protected, left, bomb, shared, memory = await outside.asked(
        kind, uid, FILES, "ATTACKS",
        "echo hi > f; mkdir d; mv f d; cat d/f; id -u; echo $HOME; pwd; echo t > $TMPDIR/t; cat $TMPDIR/t",
        "sh $SKILLS/greet/run.sh; echo x > $SKILLS/greet/run.sh",
        PROTECTED,
        f"(setsid sh -c '{NAP} & {NAP}' &); echo left",
        f"for i in $(seq 300); do {NAP} & done",
        "for i in 1 2 3; do head -c 50000000 /dev/zero > /dev/shm/$i; done; du -sm /dev/shm | cut -f1",
        f'{SYSTEM_PYTHON} -c "{_HOG}"',
    )  # fmt: skip
    workspace = outside.folder.parent / "work/workspace"
    assert SECRET not in files
    assert "root:" not in files
    assert [it.name for it in outside.folder.iterdir() if it.name == "new"] == []
    assert [it for it in attacks.splitlines() if "OPEN" in it] == []
    assert "exit code 0" in attacks
    outside.udp.setblocking(False)
    with pytest.raises(BlockingIOError):
        outside.udp.recv(1)
    lines = own.splitlines()
    assert lines == ["hi", str(uid or 65534), str(workspace), str(workspace), "t", "[exit code 0]"]
    assert skill.startswith("a shared skill")
    assert (outside.folder.parent / "greet/run.sh").read_text() == "echo a shared skill"
    assert "refused-" in protected
    made = {it.relative_to(workspace).as_posix() for it in workspace.rglob("*") if not it.name.startswith("refused-")}
    assert not made & {".bashrc", ".ssh", ".git/hooks", ".gitmodules", "skills/evil"}
    if kind.startswith("bubblewrap"):
        assert [(workspace / it).read_text() for it in (".env", ".git/config")] == ["kept", "kept"]
    assert left == "left\n[exit code 0]"
    assert "fork" in bomb or "EXEC_PROCESS_LIMIT" in bomb
    assert processes_of(NAP) == {}
    assert int(re.findall(r"^(\d+)$", f"{shared}\n0", re.MULTILINE)[0]) <= 64
    assert "HELD" not in memory
    assert "EXEC_MEMORY_LIMIT" in memory


@pytest.mark.parametrize("kind", WALLS)
@pytest.mark.skipif(not which(SYSTEM_PYTHON), reason="needs a system Python for the attacks")
async def test_what_runs_in_the_background_is_in_the_same_sandbox(outside: Outside, kind: WallKind, uid: int) -> None:
    stays = f"(setsid sh -c '{NAP} & {NAP}' &); trap '' TERM HUP; {NAP} & echo begun; while :; do sleep 1; done"
    in_terminal = f"test -t 0 && echo x >/dev/tty && echo tty; cat $UPLOADS/sent; {FILES}"
    files, attacks, terminal, typed, killed, late, idle, protected, _ = await outside.asked(
        kind, uid,
        {"command": FILES},
        {"command": "ATTACKS"},
        {"command": in_terminal, "pty": True},
        {"command": "ATTACKS", "pty": True},
        {"command": stays, "pty": True, "until": "begun"},
        {"command": NAP, "timeout_seconds": 0.5},
        {"command": NAP},
        {"command": PROTECTED},
        {"command": stays, "until": "begun", "dies": True},
    )  # fmt: skip
    assert SECRET not in files + terminal
    assert "root:" not in files + terminal
    assert [it for it in (attacks + typed).splitlines() if "OPEN" in it] == []
    assert ["exit code 0" in it for it in (attacks, typed)] == [True, True]
    assert "tty" in terminal
    assert "sent" in terminal
    assert "killed; exit code" in killed
    assert "EXEC_TIMEOUT" in late
    assert "nobody asked for it" in idle
    assert "refused-" in protected
    deadline = time.monotonic() + PATIENCE_SECONDS
    while processes_of(NAP) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_of(NAP) == {}


@pytest.mark.parametrize("kind", WALLS[:2])
@pytest.mark.skipif(not which(SYSTEM_PYTHON), reason="needs a system Python for the attacks")
async def test_with_network_a_command_holds_nothing_of_the_outside_either(
    outside: Outside, kind: WallKind, uid: int
) -> None:
    results = await outside.asked(
        kind, uid, "ATTACKS", {"command": "ATTACKS"}, {"command": "ATTACKS", "pty": True}, config={"network": True}
    )
    assert ["exit code 0" in it for it in results] == [True] * 3
    assert [it for it in results if "OPEN" in it] == []


@pytest.mark.skipif(not which(SYSTEM_PYTHON), reason="needs a system Python for the attacks")
async def test_without_a_sandbox_a_command_holds_no_descriptor_of_ours(outside: Outside, uid: int) -> None:
    results = await outside.asked(KINDS[0], uid, "ATTACKS", {"command": "ATTACKS"}, config={"sandbox": "off"})
    assert [it for it in results if "OPEN descriptor" in it] == []


async def test_where_no_sandbox_stands_nothing_runs_and_the_reason_is_given(tmp_path: Path) -> None:
    at = bench(tmp_path, sandbox=Sandbox(kinds=()))
    assert await at.code("exec", command="touch ran") == "EXEC_SANDBOX_UNAVAILABLE"
    assert not (at.root / "ran").exists()
    at.workspace.close()


@pytest.mark.parametrize("kind", WALLS[:2])
@pytest.mark.parametrize("tool", ["exec", "process"])
@pytest.mark.skipif(not which("curl"), reason="needs curl")
async def test_sandbox_network_reaches_what_web_fetch_may(tmp_path: Path, kind: WallKind, tool: str) -> None:
    certificate = certified(tmp_path, "safe.test")
    encrypted = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    encrypted.load_cert_chain(certificate)
    sandbox = Sandbox(kinds=[kind])
    if (await sandbox.opened.probe()).wall is None:
        pytest.skip(f"this machine: {sandbox.opened.report}")
    pages = {"/": response(b"x" * 200_000), "/a?b=%20c": response(b"query")}
    async with web(pages) as site, web({"/": response(b"encrypted")}, encrypted) as safe:
        site.names["rebound.test"] = [["127.0.0.9"], ["127.0.0.1"]]
        site.names["half.test"] = [["93.184.216.34", "10.0.0.1"]]
        allowed = ["site.test", "safe.test", "127.0.0.9/32"]
        client = site.fetcher(allowPrivate=allowed, ports=[site.port, safe.port, 80]).client
        uploads = tmp_path / "uploads/a"
        at = bench(tmp_path, exec_={"network": True}, sandbox=sandbox, network=client, uploads=uploads)
        (at.root / "certificate.pem").write_bytes(certificate.read_bytes())
        local = f"http://127.0.0.1:{site.port}/"
        script = f"""
            say() {{ echo "$1: $(curl -s -m 9 -w ' %{{http_code}} %{{http_connect}}' "$2" $3 $4 $5 | tail -c 120)"; }}
            say large {site.url()}
            say query '{site.url("/a?b=%20c")}'
            say posted {site.url("/")} '-d' x=1
            say tls https://safe.test:{safe.port}/ --cacert certificate.pem
            say tunnel {site.url()} -p
            say local {local}
            say forced {local} --noproxy ,
            say tunnelled {local} --noproxy , -p
            say mapped http://[::ffff:127.0.0.1]:{site.port}/ --noproxy ,
            say metadata http://169.254.169.254/
            say half http://half.test/
            say rebound http://rebound.test/
            say again http://rebound.test/
            say port {site.url().replace(str(site.port), "22")}
            printf 'GET {site.url()} HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n' > r
            echo "host: $(bash -c 'exec 3<>/dev/tcp/127.0.0.1/3128; cat r >&3; head -n 1 <&3')"
            (echo served > page; {SYSTEM_PYTHON} -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 & sleep 1)
            say own http://localhost:8000/page --retry-connrefused --retry 9
            echo done
        """
        if tool == "exec":
            output = await at.text("exec", command=script)
        else:
            begun = await at.call("process", action="start", command=script)
            output = ""
            while "\ndone" not in output:
                output += await at.text("process", action="poll", id=begun.details["id"], wait_seconds=5)
        found = dict(re.findall(r"(\w+): (.*)", output.replace("\n ", " ")))
        refused = (
            "the host has an address that is not public (tools.web.fetch.allowPrivate); nothing was fetched 403 000"
        )
        assert found["large"] == "x" * 112 + " 200 000"
        assert found["query"] == "query 200 000"
        assert found["posted"].endswith(" 200 000")
        assert found["tls"] == "encrypted 200 200"
        assert found["tunnel"].endswith(" 200 200")
        assert found["local"] == " 000 000"  # its own loopback, where nothing listens
        assert [found[it] for it in ("forced", "mapped", "metadata", "half", "again")] == [refused] * 5
        assert found["tunnelled"] == " 000 403"
        assert found["rebound"] == "the host is unknown or cannot be reached 502 000"  # where nothing listens
        assert (site.lookups.count("rebound.test"), found["port"].endswith("403 000")) == (2, True)
        assert "200 OK" in found["host"]
        assert found["own"] == "served 200 000"
        assert "Host: site.test" in site.requests[-1]
        assert "User-Agent: curl" in site.requests[0]
        assert not any("127.0.0.1" in it or "rebound" in it for it in site.requests)
        await at.processes.close()
        at.workspace.close()


async def test_the_network_is_not_opened_where_loopback_would_be(tmp_path: Path) -> None:
    at = bench(tmp_path, exec_={"network": True}, sandbox=Sandbox(kinds=["Landlock and seccomp"]))
    result = await at.call("exec", command="touch ran")
    assert "EXEC_SANDBOX_UNAVAILABLE" in text_of(result)
    assert "network" in text_of(result)
    at.workspace.close()
    free = bench(tmp_path, exec_={"network": True, "sandbox": "off"})
    assert await free.output("echo runs") == "runs"
    free.workspace.close()


async def test_a_sandbox_that_vanishes_runs_nothing_and_is_looked_for_anew(tmp_path: Path) -> None:
    sandbox = Sandbox()
    await sandbox.probe()
    sandbox.report = ProbeReport(wall=Wall(kind="bubblewrap", binary=str(tmp_path / "gone")), failures={})
    at = bench(tmp_path, sandbox=sandbox)
    assert await at.code("exec", command="touch ran") == "EXEC_SANDBOX_UNAVAILABLE"
    assert not (at.root / "ran").exists()
    assert await at.output("echo again") == "again"
    at.workspace.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_wall_that_lets_a_descriptor_in_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: WallKind
) -> None:
    """As root and not: whoever runs these tests. A folder of the outside comes along, as those of the launch once did."""
    launch = Wall.launch

    def leaking(*arguments: Any) -> Launch:
        launched = launch(*arguments)
        launched.pass_fds = (*launched.pass_fds, os.open(tmp_path, os.O_PATH | os.O_DIRECTORY))
        return launched

    monkeypatch.setattr(Wall, "launch", leaking)
    report = await Sandbox(kinds=[kind]).probe()
    if "not on this machine" in str(report):
        pytest.skip(str(report))
    assert "descriptors of ours" in str(report)
    assert report.wall is None


async def test_a_wall_that_leaves_a_socket_open_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that holds it is there, and nothing else is wrong."""
    if not sandboxes._walls("bubblewrap"):
        pytest.skip("no bubblewrap")
    fenced = bubblewrap.fenced

    def opened(binary: str, command: str, workspace: Any, **named: Any) -> tuple[list[str], list[int]]:
        argv, fds = fenced(binary, command, workspace, **named)
        at = argv.index("--remount-ro", argv.index("--chdir") - 6)
        socket_ = str(workspace.root.parent / "socket")
        return [*argv[:at], "--bind", socket_, socket_, *argv[at:]], fds

    monkeypatch.setattr(sandboxes, "fenced", opened)
    report = await Sandbox(kinds=["bubblewrap"]).probe()
    assert report.wall is None
    assert "sockets" in str(report)


@pytest.mark.parametrize("hole", ["network", "files"])
async def test_a_wall_with_a_hole_is_none(monkeypatch: pytest.MonkeyPatch, hole: str) -> None:
    """The probe itself is what is tested: a command line that opens what it should close must not pass."""
    if not sandboxes._walls("bubblewrap"):
        pytest.skip("no bubblewrap")
    fenced = bubblewrap.fenced

    def opened(*arguments: Any, **named: Any) -> tuple[list[str], list[int]]:
        argv, fds = fenced(*arguments, **named)
        at = argv.index(SCRATCH)
        pierced = {
            "network": ["--unshare-all", "--share-net"],
            "files": ["--unshare-all", "--ro-bind", "/tmp", "/tmp"],
        }[hole]
        rest = argv[2:] if hole == "network" else [*argv[2 : at - 1], *argv[at + 2 :]]
        return [argv[0], *pierced, *rest], fds

    monkeypatch.setattr(sandboxes, "fenced", opened)
    report = await Sandbox(kinds=["bubblewrap"]).probe()
    assert report.wall is None
    assert {"network": "ports", "files": "files of ours"}[hole] in str(report)


async def test_a_network_that_is_not_the_commands_own_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    if not sandboxes._walls("bubblewrap"):
        pytest.skip("no bubblewrap")
    launch = Wall.launch

    def shared(*arguments: Any) -> Launch:
        launched = launch(*arguments)
        launched.plan = {name: value for name, value in launched.plan.items() if name != "network"}
        return launched

    monkeypatch.setattr(Wall, "launch", shared)
    report = await Sandbox(kinds=["bubblewrap"]).opened.probe()
    assert report.wall is None
    assert "no way to the network" in str(report)


async def test_sandbox_probe_killed_leaves_no_process() -> None:
    """A manager of services that reads what a gateway writes waits for the end of it."""
    code = "import asyncio; from tools.sandbox.sandbox import Sandbox; asyncio.run(Sandbox().probe())"
    for _ in range(5):
        gateway = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
        assert gateway.stdout is not None
        children = Path(f"/proc/{gateway.pid}/task/{gateway.pid}/children")
        await until(lambda children=children: children.read_text())  # type: ignore[misc]
        gateway.kill()
        async with asyncio.timeout(PATIENCE_SECONDS / 2):
            await gateway.stdout.read()
        await gateway.wait()


async def test_whether_commands_can_run_is_shown_where_readiness_is(tmp_path: Path) -> None:
    async with running(tmp_path, more="tools: { exec: { mode: allow } }") as house:
        await house.gateway.runtime.sandbox.probe()
        async with client(house.url) as http:
            shown = (await http.get("/readyz")).json()["sandbox"]
    assert shown in (*KINDS, "none")


def test_the_filter_is_one_that_the_kernel_can_take() -> None:
    for families in ((), (1, 2)):
        program = seccomp(families, (1, -1), truncates=False)
        assert len(program) % 8 == 0
        assert len(program) // 8 <= 4096


CLOSED = {
    "git of root's": "mkdir -p .git/hooks; touch .git/config; chmod -R go-rwx .git",
    "all of root's": "mkdir -p .git/hooks sub; touch .git/config AGENTS.md .env notes.txt sub/x; chmod -R go-rwx .",
    "a folder of root's": "mkdir -p memory skills/own .ssh; touch skills/own/SKILL.md; chmod 700 memory skills .ssh",
}


@pytest.mark.parametrize("kind", WALLS)
@pytest.mark.parametrize("made", CLOSED)
@pytest.mark.skipif(os.geteuid() != 0, reason="what root alone may enter is made by root")
async def test_a_workspace_that_root_made_for_itself_runs_commands(tmp_path: Path, kind: WallKind, made: str) -> None:
    (tmp_path / "workspace").mkdir(mode=0o700)
    subprocess.run(CLOSED[made], shell=True, cwd=tmp_path / "workspace", check=True)
    at = bench(tmp_path, sandbox=Sandbox(kinds=[kind]))
    if (await Sandbox(kinds=[kind]).probe()).wall is None:
        pytest.skip(f"not {kind} here")
    assert await at.output("echo hello > made; cat made") == "hello"
    at.workspace.close()


@pytest.mark.parametrize("kind", WALLS)
@pytest.mark.parametrize("mode", ["000", "555", "077"])
async def test_a_command_that_closes_the_workspace_closes_it_for_nobody(
    outside: Outside, kind: WallKind, uid: int, mode: str
) -> None:
    """And it brings in nothing by that, nor has what stood there renamed."""
    closed, after = await outside.asked(
        kind, uid, f"echo bad > TOOLS.md; chmod {mode} .; sleep 0.5; echo closed", "ls -A; cat AGENTS.md"
    )
    assert closed.startswith("closed")
    assert after.endswith("kept\n[exit code 0]")
    names = after.splitlines()
    assert {"AGENTS.md", ".env"} <= set(names)
    assert "TOOLS.md" not in names
    assert [it for it in names if it.startswith("refused-")] == [it for it in names if it.endswith("-TOOLS.md")] != []


async def test_a_workspace_where_no_sandbox_can_be_built_is_not_tried_for_ever(tmp_path: Path) -> None:
    """It says so once more, with what to do, and begins anew once one could be built."""
    sandbox = Sandbox()
    wall = (await sandbox.probe()).wall
    at = bench(tmp_path, sandbox=sandbox)
    answers = []
    for broken in (True, True, False, True):
        there = Wall(kind="bubblewrap", binary=str(tmp_path / "gone")) if broken else wall
        sandbox.report = ProbeReport(wall=there, failures={})
        sandbox._probed = time.monotonic()
        answers.append(text_of(await at.call("exec", command="echo ran")))
    assert ["Try it again once" in it for it in answers] == [True, False, False, True]
    assert ("doctor" in answers[1], '"retryable": false' in answers[1]) == (True, True)
    assert answers[2].startswith("ran")
    at.workspace.close()
