"""Several people and one agent: what each of them sends stays in his chat, and where each has a workspace of his own."""

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.models.script import says
from tests.running import ALICE, ALICE_CHAT, BOB, BOB_CHAT, GROUP, Running, running
from tests.stories.at_work import DONE, RUNS, prompt, results, spoken, works
from tests.web_page import CHAT, WEB, Page, opened

SEEDED = "AGENTS.md\nMEMORY.md\nSOUL.md\nUSER.md"
SECRET = b"CANARY: Alice's salary"


async def sends(house: Running, data: bytes = SECRET, name: str = "salary.txt", **who: Any) -> str:
    """Somebody sends a file; the path that the model is told."""
    who = who or {"sender": ALICE, "chat": ALICE_CHAT}
    house.anthropic.script = [says(DONE)]
    answers = len(house.feishu.messages)
    await house.push(house.feishu.file_event(data, name=name, **who))
    await house.replies(answers + 1)
    await house.idle()
    found = re.search(r"saved as (\S+?)[;.,](?: .*)?\)?$", spoken(house), re.MULTILINE)
    assert found, spoken(house)
    return found[1]


@pytest.fixture
def passable() -> Iterator[Path]:
    """A folder that commands may pass through: where the gateway is root, they are somebody else."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "data").mkdir()
        for path in (Path(folder), Path(folder) / "data"):
            path.chmod(0o711)
        yield Path(folder)


async def test_upload_stays_at_its_told_path_in_later_turns(
    passable: Path,
) -> None:
    async with running(passable, more=RUNS) as house:
        path = await sends(house)
        folder, _, name = path.rpartition("/")
        assert (path.startswith("./uploads/"), name) == (True, "salary.txt")
        read, uploads, inner, top, command, absolute = await works(
            house,
            ("read", {"file_path": path}),
            ("ls", {"path": "uploads"}),
            ("ls", {"path": folder}),
            ("ls", {}),
            ("exec", {"command": f'cat "$UPLOADS"/{path.removeprefix("./uploads/")}; echo; echo "$UPLOADS"'}),
            ("read", {"file_path": str(house.workspace() / path)}),
        )
        assert read == absolute == SECRET.decode()
        assert (uploads, inner) == (f"{folder.rpartition('/')[2]}/", "salary.txt")
        assert "uploads/" in top.split("\n")
        content, place, _ = command.split("\n")
        assert content == SECRET.decode()
        by_command, edited, written, sent = await works(
            house,
            ("read", {"file_path": f"{place}/{path.removeprefix('./uploads/')}"}),
            ("edit", {"file_path": path, "old_text": "salary", "new_text": "wages"}),
            ("write", {"file_path": "uploads/mine.txt", "content": "x"}),
            ("read", {"file_path": path}),
        )
        assert by_command == SECRET.decode()
        assert edited.startswith(f"Edited {path.removeprefix('./')} ")
        assert (written, sent) == ("Wrote uploads/mine.txt (1 bytes)", "CANARY: Alice's wages")
        base = passable / "data" / "uploads"
        assert base.stat().st_mode & 0o066 == 0
        (session,) = base.iterdir()
        assert session.stat().st_mode & 0o077 == 0
    async with running(passable) as house:
        assert await works(house, ("read", {"file_path": path})) == [sent]


BOBS: dict[str, Any] = {"sender": BOB, "chat": BOB_CHAT}
IN_A_GROUP: dict[str, Any] = {"sender": ALICE, "chat": GROUP, "chat_type": "group", "mention_bot": True}


async def test_upload_of_one_chat_is_unreachable_for_others(tmp_path: Path) -> None:
    async with (
        running(tmp_path, more=RUNS, feishu=WEB) as house,
        opened(house.url, link=house.gateway.offer_link()) as page,
    ):
        path = await sends(house)
        *refused, top, command = await works(
            house,
            ("ls", {"path": "uploads"}),
            ("ls", {"path": path.rpartition("/")[0]}),
            ("read", {"file_path": path}),
            ("read", {"file_path": str(house.workspace() / path)}),
            ("read", {"file_path": f"UPLOADS/{path.removeprefix('./uploads/')}"}),
            ("edit", {"file_path": path, "old_text": "salary", "new_text": "x"}),
            ("ls", {}),
            ("exec", {"command": "pwd; find -L . ; cat uploads/*/*; env"}),
            **BOBS,
        )
        refused += await works(house, ("read", {"file_path": path}), **IN_A_GROUP)
        assert [json.loads(it)["error_code"] for it in refused] == ["NOT_FOUND"] * 7
        assert top == "\n".join(it for it in SEEDED.split("\n") if it not in ("MEMORY.md", "USER.md"))
        assert "CANARY" not in command
        assert "salary" not in command
        theirs = await sends(house, b"Bob's", **BOBS)
        assert await works(house, ("ls", {"path": "./uploads"}), **BOBS) == [f"{theirs.split('/')[2]}/"]
        house.anthropic.script = [says(f"Here.\nMEDIA:{path}")]
        await page.say("send me what Alice sent")
        assert "could not attach" in (await page.answers(1))[0]
        assert page.written()[0]["files"] == []
        assert await works(house, ("read", {"file_path": path})) == [SECRET.decode()]


async def test_upload_of_an_older_version_is_shown_to_nobody(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        old = house.workspace() / "uploads" / "a11ce0000001"
        old.mkdir(parents=True)
        (old / "salary.txt").write_bytes(SECRET)
        results = await works(
            house,
            ("ls", {"path": "uploads"}),
            ("read", {"file_path": "uploads/a11ce0000001/salary.txt"}),
            ("read", {"file_path": "Uploads/a11ce0000001/salary.txt"}),
            ("ls", {}),
        )
        assert "CANARY" not in "".join(results)
        assert "uploads/" not in results[3].split("\n")
        path = await sends(house, b"new", "new.txt")
        listed, read = await works(house, ("ls", {"path": "uploads"}), ("read", {"file_path": path}))
        assert (listed, read) == (f"{path.split('/')[2]}/", "new")


async def test_upload_is_deleted_with_its_conversation(house: Running, page: Page) -> None:
    base = house.folder / "data" / "uploads"

    def kept() -> list[str]:
        return sorted(path.read_text() for path in base.rglob("*") if path.is_file())

    for number, chat in enumerate((CHAT, f"{CHAT}2"), 1):
        file = (await page.upload(f"of {chat}".encode(), "a.txt", "text/plain")).json()
        await page.say("keep it", chat=chat, files=[file["id"]])
        await page.answers(number)
    await house.idle()
    assert kept() == [f"of {CHAT}", f"of {CHAT}2"]
    (file_,) = [path for path in base.rglob("a.txt") if path.read_text() == f"of {CHAT}"]
    session = base / file_.relative_to(base).parts[0]
    session.rename(house.folder / "aside")
    session.touch()
    answer = await page.http.delete(f"/api/chats/{CHAT}")
    assert (answer.status_code, answer.json()["code"]) == (500, "files-not-deleted")
    session.unlink()
    (house.folder / "aside").rename(session)
    assert (await page.http.delete(f"/api/chats/{CHAT}")).status_code == 204
    assert kept() == [f"of {CHAT}2"]


TOOLS = "tools: { allow: [read, write, ls, exec] }"


def agents(place: str) -> str:
    model = "model: anthropic/claude-sonnet-4-6"
    return f"agents: {{ list: [ {{ id: helper, {model}, workspaceDir: './data/workspaces/{place}', {TOOLS} }} ] }}"


@pytest.mark.parametrize(
    "place",
    [
        *("{agent}/{sender}", "{chat}/{agent}"),
        *(pytest.param(it, marks=pytest.mark.long) for it in ("{agent}/{chat}", "x/{chat}/{sender}")),
    ],
)
async def test_workspace_per_chat_or_person(tmp_path: Path, place: str) -> None:
    async with running(tmp_path, agents=agents(place), more=RUNS) as house:
        await works(house, ("write", {"file_path": "mine.txt", "content": "CANARY"}))
        (made,) = [path.parent for path in (tmp_path / "data" / "workspaces").rglob("mine.txt")]
        assert made.stat().st_mode & 0o777 == 0o700
        assert f"Your working directory is {made}\n" in prompt(house)
        listed, read, absolute, beside, command = await works(
            house,
            ("ls", {}),
            ("read", {"file_path": "mine.txt"}),
            ("read", {"file_path": str(made / "mine.txt")}),
            ("read", {"file_path": f"../{made.name}/mine.txt"}),
            ("exec", {"command": "ls"}),
            **BOBS,
        )
        assert listed == SEEDED
        assert command in (
            f"{SEEDED}\n[exit code 0]",
            f"{SEEDED}\nskills\n[exit code 0]",
        )  # where shared ones are mounted
        assert [json.loads(it)["error_code"] for it in (read, absolute, beside)] == ["NOT_FOUND"] * 3
        (made / "AGENTS.md").write_text("Alice's instructions")
        (made / "skills" / "hers").mkdir(parents=True)
        (made / "skills" / "hers" / "SKILL.md").write_text("# Hers\nA skill of hers.\n")
        read, command = await works(house, ("read", {"file_path": "mine.txt"}), ("exec", {"command": "cat mine.txt"}))
        assert (read, command) == ("CANARY", "CANARY\n[exit code 0]")
        assert "Alice's instructions" in prompt(house)
        assert "./skills/hers/SKILL.md" in prompt(house)
        for who in (BOBS, IN_A_GROUP):
            await works(house, ("read", {"file_path": "mine.txt"}), **who)
            assert '"NOT_FOUND"' in results(house.anthropic.requests[-1].body)[-1]
            assert "Alice's" not in prompt(house)
            assert "skills/hers" not in prompt(house)
        await sends(house)
        assert [path.name for path in made.iterdir() if path.name == "uploads"] == []
    held = [str(it.resolve()) for it in Path("/proc/self/fd").iterdir() if it.is_symlink()]
    assert [it for it in held if "/workspaces/" in it] == []


async def test_workspace_ls_shows_shared_skills(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        shared = "create-python-script/\ntranslate/\nweekly-report/"
        assert await works(house, ("ls", {"path": "skills"})) == [shared]
        own = house.workspace() / "skills" / "mine"
        own.mkdir(parents=True)
        (own / "SKILL.md").write_text("# Mine\nMy own.\n")
        paths = ("./skills", "skills/create-python-script", "skills/mine/")
        listed = await works(house, *(("ls", {"path": path}) for path in paths))
        assert listed == [shared.replace("translate", "mine/\ntranslate"), "SKILL.md", "SKILL.md"]


async def test_docs_named_in_the_prompt_can_be_read(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        await works(house)
        found = re.search(r"documentation of \S+ itself lies in (\S+)\n", prompt(house))
        assert found
        listed, page = await works(
            house,
            ("ls", {"path": found[1]}),
            ("read", {"file_path": f"{found[1]}/config.md", "limit": 3}),
        )
        assert "config.md" in listed.split("\n")
        assert page.startswith("# ")
        own = next((tmp_path / "data/workspaces").glob("helper*")) / "docs"
        own.mkdir()  # by the operator: no file tool makes a folder of that name
        own.chmod(0o777)
        (own / "plan.md").write_text("ours")
        listed, page = await works(house, ("ls", {"path": "docs"}), ("read", {"file_path": "docs/config.md"}))
        assert listed == "plan.md"
        assert '"NOT_FOUND"' in page
        assert "## Documentation" not in prompt(house)


async def test_skill_an_agent_may_not_use_is_neither_named_nor_listed(tmp_path: Path) -> None:
    agent = "id: {}, model: anthropic/claude-sonnet-4-6"
    unskilled = agent.format("helper, skills: { deny: ['*'] }")
    writer = agent.format("writer, tools: { allow: [message] }")
    bindings = f"bindings: [ {{ agent: writer, match: {{ channel: feishu, chat: {BOB_CHAT} }} }} ]"
    agents = f"agents: {{ list: [ {{ {unskilled} }}, {{ {writer} }} ] }}\n{bindings}"
    async with running(tmp_path, agents=agents) as house:
        assert '"NOT_FOUND"' in (await works(house, ("ls", {"path": "skills"})))[0]
        assert "## Documentation" in prompt(house)
        await works(house, **BOBS)
        assert "## Documentation" not in prompt(house)
        assert "/approve" not in prompt(house).partition("## Gateway Control")[0]  # which names the commands alone
