"""Commands through the whole gateway: what a model reads of them, and what they can take of the machine."""

import re
from pathlib import Path

import pytest

from tests.running import Running, running
from tests.stories.at_work import RUNS, works


@pytest.mark.parametrize("command", ["yes 0123456", "head -c 15000000 /dev/zero", "seq 100000; echo the end"])
async def test_exec_output_flood_shows_both_ends_and_the_total(tmp_path: Path, command: str) -> None:
    (shown,), _ = await run(tmp_path, command)
    assert "characters were cut" not in shown
    assert len(shown) <= 64_000
    ((mark, left),) = re.findall(r"(\n\[… ([\d,]+) bytes of output are left out …\]\n)", shown)
    head, _, rest = shown.partition(mark)
    tail, _, note = rest.rpartition("\n[")
    kept = len((head + tail).replace(r"\x00", "0"))
    total = int(left.replace(",", "")) + kept
    if command.startswith("yes"):
        assert note.startswith("EXEC_OUTPUT_LIMIT")
        assert total > 16 * 1024 * 1024
    else:
        assert note == "exit code 0]"
        assert total == 15_000_000 if "zero" in command else tail.endswith("the end")


async def run(folder: Path, *commands: str, more: str = RUNS) -> tuple[list[str], Running]:
    """What the model is shown of each command."""
    async with running(folder, more=more) as house:
        return await works(house, *(("exec", {"command": command}) for command in commands)), house


CAPPED = "tools: { exec: { mode: allow, writtenBytes: 20000000, timeoutSeconds: 30 } }"
FLOODS = [
    pytest.param("for i in $(seq 1000); do head -c 3000000 /dev/zero > f$i; done", id="many files"),
    pytest.param("for i in $(seq 1000); do head -c 3000000 /dev/zero > $TMPDIR/f$i; done", id="its temporary folder"),
    pytest.param("head -c 30000000 /dev/zero > once", id="over before anybody looks"),
    pytest.param("mkdir -p a/b; cd a/b; seq 100000 | xargs touch", id="names without content"),
]


@pytest.mark.parametrize("command", FLOODS)
async def test_exec_that_writes_too_much_is_stopped(tmp_path: Path, command: str) -> None:
    (shown,), house = await run(tmp_path, command, more=CAPPED)
    assert "EXEC_DISK_LIMIT" in shown
    assert "20,000,000 bytes" in shown
    written = sum(path.stat().st_size for path in house.workspace().rglob("*") if path.is_file())
    assert written < 1_000_000_000


async def test_exec_write_limit_ignores_existing_and_linked_files(tmp_path: Path) -> None:
    make = "for i in 1 2 3 4 5; do head -c 3000000 /dev/zero > f$i; done"
    shown, _ = await run(tmp_path, make, "mkdir c; cp -al f? c; chmod 600 f?; mv f1 f9; rm f2", more=CAPPED)
    assert shown == ["[exit code 0]", "[exit code 0]"]


async def test_exec_on_a_nearly_full_disk_can_only_delete(tmp_path: Path) -> None:
    more = f"tools: {{ exec: {{ mode: allow, freeBytes: {1 << 60} }} }}"
    (tmp_path / "data/workspaces/helper").mkdir(parents=True)
    (tmp_path / "data/workspaces/helper/old").write_bytes(bytes(100_000))
    shown, house = await run(tmp_path, "rm old && echo gone", "echo x > new; cat new", more=more)
    note = f"it could write nothing to files: less than {1 << 60:,} bytes are left on the disk"
    assert shown[0] == f"gone\n[exit code 0; {note}]"
    assert note in shown[1]
    assert [path.stat().st_size for path in house.workspace().iterdir() if path.is_file()] == [0]


@pytest.mark.parametrize("sandbox", ["auto", "off"])
async def test_exec_temporary_files_end_with_it(tmp_path: Path, sandbox: str) -> None:
    mark = f"of-{tmp_path.name}-{sandbox}"
    command = (
        f'f=$(mktemp); echo x > "$f"; mkdir -p "$TMPDIR/{mark}/b"; chmod 500 "$TMPDIR/{mark}"; cat "$f"; ls "$TMPDIR"'
    )
    (shown,), _ = await run(tmp_path, command, more=f"tools: {{ exec: {{ mode: allow, sandbox: {sandbox} }} }}")
    assert shown.startswith("x\n")
    assert mark in shown
    assert not [*Path("/tmp").glob(f"clawgate-*/{mark}")]
