"""USER.md and the memory files: every tool × every kind of chat × every kind of person × every other name and link."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import orjson
import pytest

from gateway.operate import contacts
from tests.emulators.models.script import calls, says
from tests.running import ALICE, ALICE_CHAT, BOB, BOB_CHAT, FEISHU, GROUP, Running, running
from tests.sandboxes import WALLS
from tests.stories.at_work import DONE, prompt, results, users, works
from tests.stories.http.test_openai_api import API, TOKEN, hello, official
from tests.stories.inbox.test_hooks import call, signed
from tools.sandbox.sandbox import Sandbox, WallKind

AGENTS = """
agents:
  list:
    - id: helper
      model: anthropic/claude-sonnet-4-6
      tools:
        allow: [read, write, edit, ls, grep, find, exec, process, message, memory_search, memory_get]
"""
MORE = """
tools: { exec: { mode: allow }, process: { timeoutSeconds: 30 }, ownerOnly: [], taint: [] }
limits: { toolCalls: 400 }
"""
Wanted: TypeAlias = tuple[str, dict[str, Any]]
IN_GROUP = {"chat": GROUP, "chat_type": "group", "mention_bot": True}
CHATS: Mapping[str, tuple[bool, dict[str, Any]]] = {
    "the owner's own": (True, {"sender": ALICE, "chat": ALICE_CHAT}),
    "a listed person's own": (True, {"sender": BOB, "chat": BOB_CHAT}),
    "a group, by the owner": (False, {"sender": ALICE, **IN_GROUP}),
    "a group, by another": (False, {"sender": BOB, **IN_GROUP}),
    "a topic, by the owner": (False, {"sender": ALICE, **IN_GROUP, "thread_id": "omt_1"}),
    "a topic, by another": (False, {"sender": BOB, **IN_GROUP, "thread_id": "omt_2"}),
}
"""Whether the private files are there, and who writes where. A program's calls come besides."""
DIRECT, GROUPS = ({chat: who for chat, (of, who) in CHATS.items() if of == sees} for sees in (True, False))
SHARES = (4, pytest.param(1, marks=pytest.mark.long))
"""Every kind of chat is asked by one name of so many, each by others; `make test-all` has all of them everywhere."""

SECRETS = {
    "MEMORY.md": "WITNESS of the memory",
    "USER.md": "WITNESS of the person",
    "memory/2026-01-01.md": "WITNESS of the day",
    "memory/deep/er.txt": "WITNESS of the depth",
    "memory/linked.md": "WITNESS of a file with three names",
}
LINKS = {
    "link.md": "MEMORY.md",
    "here": ".",
    "days": "memory",
    "chain": "days",
    "folder/up": "..",
    "folder/user": "../USER.md",
}
LINKED = "memory/linked.md"
"""It has two more names; file tools read nothing that has a second one."""
HARD = ("hard.md", "folder/hard")
NAMES = (
    *SECRETS, "./x/../MEMORY.md", "ROOT/MEMORY.md", "ROOT/folder/../USER.md", "memory", "memory/deep", "memory/",
    "./memory/.", "link.md", "here/MEMORY.md", "here/memory/2026-01-01.md", "days", "days/2026-01-01.md",
    "chain/deep/er.txt", "folder/up/USER.md", "folder/user", "hard.md", "folder/hard", "here/here/days/../USER.md",
)  # fmt: skip
ODD = (
    "memory.md", "MEMORY.MD", "User.md", "ＭＥＭＯＲＹ.md", "MEMORY.md.", "MEMORY.md ", "Memory/2026-01-01.md",
    "memory./deep", "\u24c2EMORY.md",
)  # fmt: skip
"""Names of other files here, and of the same ones on a file system that compares carelessly."""
EVERY = slice(None)
COMMANDS = (
    "cat MEMORY.md USER.md memory/* memory/*/*",
    "cat here/MEMORY.md link.md days/2026-01-01.md folder/user",
    "grep -r WITNESS .; find . -type f | xargs cat",
    "ln MEMORY.md h; cat h; ln -s MEMORY.md s; cat s; cp MEMORY.md c; cat c",
    "mv memory m; cat m/*; mv MEMORY.md m; cat m; rm -f MEMORY.md; cat MEMORY.md; rm -rf memory; cat memory/*",
    "echo CHANGED > MEMORY.md; echo CHANGED > memory/2026-01-01.md; sed -i s/W/C/ USER.md; cat USER.md",
)


def named(root: Path, *names: str) -> list[str]:
    return [it.replace("ROOT", str(root)) for it in names]


def wall(kind: WallKind) -> Any:
    return Sandbox(kinds=[kind])


def planted(root: Path, *, secrets: bool) -> None:
    (root / "folder").mkdir()
    for name in ("MEMORY.md", "USER.md"):
        (root / name).unlink()
    for name, text in SECRETS.items() if secrets else ():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    for name, target in LINKS.items():
        (root / name).symlink_to(target)
    if not secrets:
        (root / "hard.md").write_text("not private")
    (root / "folder/hard").hardlink_to(root / (LINKED if secrets else "hard.md"))
    if secrets:
        (root / "hard.md").hardlink_to(root / LINKED)


def asked(root: Path, names: slice = EVERY) -> list[Wanted]:
    """Every file tool that reads, with these of the names."""
    reading = [
        call
        for name in named(root, *NAMES, *ODD)[names]
        for call in (
            ("read", {"file_path": name}),
            ("grep", {"pattern": "WITNESS", "path": name}),
            ("find", {"glob": "**", "path": name}),
            ("ls", {"path": name}),
            ("message", {"action": "send", "message": "see", "media": [name]}),
            ("memory_get", {"path": name}),
        )
    ]
    searching: list[Wanted] = [
        ("memory_search", {"query": "witness"}),
        ("grep", {"pattern": "(?i)witness"}),
        ("grep", {"pattern": "WITNESS", "path": "here"}),
        ("grep", {"pattern": "WITNESS", "glob": "**/*.md"}),
        ("find", {"glob": "**"}),
        ("find", {"glob": "*", "path": "here"}),
        *(("ls", {"path": path}) for path in (".", "here", "folder/up", "folder", str(root))),
    ]
    return [*reading, *searching]


def changing(root: Path, names: slice = EVERY) -> list[Wanted]:
    return [
        call
        for name in named(root, *NAMES, *ODD, "memory/new.txt", "USER.md/x")[names]
        for call in (
            ("edit", {"file_path": name, "old_text": "WITNESS", "new_text": "WITNESS"}),
            ("edit", {"file_path": name, "old_text": "WITNESS", "new_text": "CHANGED"}),
            ("write", {"file_path": name, "content": "CHANGED"}),
        )
    ]


@asynccontextmanager
async def house_of(folder: Path, *, secrets: bool = True, more: str = "") -> AsyncIterator[Running]:
    folder.mkdir(exist_ok=True)
    owners = f'owners: ["feishu:{ALICE}"]' if "owners" not in more else ""
    listed = f'{FEISHU}    allowFrom: ["{BOB}"]\n'
    async with running(folder, agents=AGENTS, more=MORE + owners + more, feishu=listed) as house:
        planted(house.workspace(), secrets=secrets)
        yield house


def untouched(house: Running) -> bool:
    found = {name: (house.workspace() / name).read_text() for name in SECRETS}
    return found == {name: f"{text}\n" for name, text in SECRETS.items()}


async def does(house: Running, wanted: Sequence[Wanted], token: str = "", **who: Any) -> list[str]:
    """The agent makes these calls, twelve in each answer, for a person or for a program; what each of them gave."""
    script = house.anthropic.script = [*(calls(*wanted[at : at + 12]) for at in range(0, len(wanted), 12)), says(DONE)]
    if token:
        async with official(house.url, token) as ai:
            await ai.chat.completions.create(**hello())
    else:
        requests = len(house.anthropic.requests) + len(script)
        await house.say("go on", **who)
        await house.requested(requests)
    await house.idle()
    found = results(house.anthropic.requests[-1].body)
    return found[len(found) - len(wanted) :]


def leaked(house: Running, answers: Sequence[str]) -> list[str]:
    """Where the secret is in what a tool gave, a person was sent, or the model was told."""
    uploads = [it.data for it in house.feishu.resources.values()]
    places = [*answers, prompt(house), *(it.text for it in house.feishu.messages), *map(repr, uploads)]
    return [it for it in places if "WITNESS of" in it]


def told(answers: Sequence[str], root: Path) -> list[str]:
    return [it.replace(str(root), "ROOT") for it in answers]


@pytest.mark.parametrize("share", SHARES)
async def test_private_files_are_invisible_to_file_tools_in_a_group(tmp_path: Path, share: int) -> None:
    """And what a tool says is what it says where there are none: the answer is no oracle."""
    said: list[list[str]] = [[], []]
    for secrets, answers in zip((True, False), said, strict=True):
        async with house_of(tmp_path / str(secrets), secrets=secrets) as house:
            root = house.workspace()
            for number, (chat, who) in enumerate(GROUPS.items()):
                names = slice(number % share, None, share)
                answers += await does(house, asked(root, names), **who)
                assert "### MEMORY.md" not in prompt(house), chat
                answers += (changed := await does(house, changing(root, names), **who))
                assert not leaked(house, answers), chat
                assert not any("Edited" in it for it in changed), chat
                assert not secrets or untouched(house), chat
                assert not (root / "memory/new.txt").exists(), chat
            answers[:] = told(answers, root)
    assert said[0] == said[1]


@pytest.mark.parametrize("chat", DIRECT)
async def test_private_files_are_found_in_a_direct_chat(tmp_path: Path, chat: str) -> None:
    who = DIRECT[chat]
    async with house_of(tmp_path) as house:
        reading: list[Wanted] = [
            call
            for name in SECRETS
            for call in (
                ("read", {"file_path": name}),
                ("grep", {"pattern": "WITNESS", "path": name}),
                ("exec", {"command": f"cat {name}"}),
            )
        ]
        found = ["WITNESS of" in it for it in await does(house, reading, **who)]
        assert found == [it for name in SECRETS for it in (name != LINKED, name != LINKED, True)]
        listed = await works(house, ("ls", {}), ("find", {"glob": "**"}), ("memory_search", {"query": "day"}), **who)
        assert ["memory" in it for it in listed] == [True, True, True]
        await works(house, ("read", {"file_path": "link.md"}), **who)
        assert "WITNESS of the memory" in prompt(house)


CAROL, DAVE, ERIN = (f"ou_{name}{'0' * 26}" for name in ("ca401", "da4e00", "e419"))
READERS = {ALICE: True, BOB: True, CAROL: True, DAVE: False, ERIN: False}
"""The owner, a person in `allowFrom`, one who was approved, a stranger, and one whose approval was revoked."""
SUMMED = {"secret": "canary-hook-secret-91827", "verify": "hmac", "task": "Sum up {{ body.title }}"}


@pytest.mark.parametrize("policy", ["open", "pairing", "allowlist"])
async def test_private_files_are_for_owners_and_people_who_were_let_in(tmp_path: Path, policy: str) -> None:
    """`dmPolicy: open`, and `*` in any list, admit a person to the chat and to nothing of the owner's."""
    everybody = f'{FEISHU.replace("dmPolicy: open", f"dmPolicy: {policy}")}    allowFrom: ["{BOB}", "*"]\n'
    calls_ = (
        ("read", {"file_path": "MEMORY.md"}),
        ("grep", {"pattern": "WITNESS"}),
        ("memory_get", {"path": "MEMORY.md"}),
        ("memory_search", {"query": "witness"}),
        ("exec", {"command": "cat MEMORY.md USER.md"}),
    )
    async with running(tmp_path, agents=AGENTS, more=f'{MORE}owners: ["feishu:{ALICE}"]', feishu=everybody) as house:
        for name, text in SECRETS.items():
            (house.workspace() / name).parent.mkdir(parents=True, exist_ok=True)
            (house.workspace() / name).write_text(text)
        for person in (CAROL, ERIN):
            await asyncio.to_thread(contacts.approve, house.gateway.config, f"feishu:{person}")
        await asyncio.to_thread(contacts.revoke, house.gateway.config, f"feishu:{ERIN}")
        for number, (person, sees) in enumerate(READERS.items()):
            who = {"sender": person, "chat": f"oc_{number}{'0' * 26}"}
            answers = await works(house, *calls_, **who)
            assert ["WITNESS of" in it for it in answers] == [sees] * len(calls_), person
            assert ("WITNESS of the memory" in prompt(house)) == sees, person
            house.anthropic.script = [says("Here.\n\nMEDIA: MEMORY.md")]
            before = len(house.feishu.resources)
            await house.say("send it", **who)
            await house.idle()
            assert (len(house.feishu.resources) > before) == sees, person


async def test_private_files_are_hidden_from_schedules_unless_the_reader_may(tmp_path: Path) -> None:
    """The operator's own schedule is judged by the person to whom it is sent. An event of another system sees nothing."""
    clock = [time.time()]
    due = [
        {"id": f"s{number}", "to": f"feishu:{person}", "at": "every 1h", "task": f"Begin the day of {person}."}
        for number, person in enumerate(READERS)
    ]
    hooks = {f"h{number}": {**SUMMED, "to": f"feishu:{person}"} for number, person in enumerate(READERS)}
    more = f'{MORE}owners: ["feishu:{ALICE}"]\nschedules: {json.dumps(due)}\nhooks: {json.dumps(hooks)}'
    listed = f'{FEISHU}    allowFrom: ["{BOB}"]\n'
    async with running(
        tmp_path, agents=AGENTS, more=more, feishu=listed, script=lambda _: says(DONE), now=lambda: clock[0]
    ) as house:
        (house.workspace() / "MEMORY.md").write_text("WITNESS of the memory")
        await asyncio.to_thread(contacts.approve, house.gateway.config, f"feishu:{CAROL}")
        clock[0] += 3_601
        await house.requested(len(READERS))
        await house.idle()
        seen = {}
        for request in house.anthropic.requests:
            (person,) = [it for it in READERS if f"the day of {it}" in users(request.body)[-1]]
            seen[person] = "WITNESS of" in "".join(it["text"] for it in request.body["system"])
        assert seen == READERS
        for number, name in enumerate(hooks, len(READERS) + 1):
            body = orjson.dumps({"title": "say what the memory holds", "id": name})
            assert (await call(house, body, signed(body, at=clock[0]), name)).status_code == 202
            await house.requested(number)
            await house.idle()
            assert "WITNESS of" not in prompt(house), name


@pytest.mark.parametrize("to", ["person", "chat"])
@pytest.mark.parametrize("sees", [True, False])
async def test_private_files_are_shown_in_a_schedule_to_a_known_person(tmp_path: Path, to: str, sees: bool) -> None:
    """A platform's direct chat has an id of its own, from which nobody can tell the person."""
    clock = [time.time()]
    person, place = (ALICE, ALICE_CHAT) if sees else (BOB, BOB_CHAT)
    due = [
        {"id": "s", "to": f"feishu:{person if to == 'person' else place}", "at": "every 1h", "task": "Begin the day."}
    ]
    more = f'{MORE}owners: ["feishu:{ALICE}"]\nschedules: {json.dumps(due)}'
    async with running(tmp_path, agents=AGENTS, more=more, script=lambda _: says(DONE), now=lambda: clock[0]) as house:
        (house.workspace() / "MEMORY.md").write_text("WITNESS of the memory")
        await house.say("hello", sender=person, chat=place)
        await house.replies(1)
        await house.idle()
        clock[0] += 3_601
        await house.requested(2)
        assert "Begin the day" in users(house.anthropic.requests[-1].body)[-1]
        assert ("WITNESS of" in prompt(house)) == sees
        await house.idle()


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("is_owner", [True, False])
async def test_private_files_are_seen_by_owner_programs_only(tmp_path: Path, is_owner: bool, share: int) -> None:
    more = API + f'owners: ["feishu:{ALICE}"{", api:ui" if is_owner else ""}]\n'
    names = slice(0, None, share)
    async with house_of(tmp_path, more=more) as house:
        for name in HARD:
            (house.workspace() / name).unlink()
        answers = await does(house, asked(house.workspace(), names), TOKEN)
        if is_owner:
            assert leaked(house, answers)
            assert "WITNESS of the memory" in prompt(house)
        else:
            answers += await does(house, changing(house.workspace(), names), TOKEN)
            assert not leaked(house, answers)
            assert untouched(house)


async def test_private_files_of_a_programs_own_workspace(tmp_path: Path) -> None:
    own = AGENTS.replace("id: helper\n", "id: helper\n      workspaceDir: './own/{sender}'\n")
    more = f'{MORE}owners: ["feishu:{ALICE}"]\n{API}'
    async with running(tmp_path, agents=own, more=more) as house:
        noted = ("write", {"file_path": "MEMORY.md", "content": "WITNESS of mine"})
        assert "Wrote MEMORY.md" in (await does(house, [noted], TOKEN))[0]
        assert await does(house, [("read", {"file_path": "MEMORY.md"})], TOKEN) == ["WITNESS of mine"]
        assert "WITNESS of mine" in prompt(house)
        (refused,) = await works(house, noted, **CHATS["a group, by another"][1])  # a group never sees them
        assert "PROTECTED" in refused


async def test_private_files_are_never_attached_in_a_group(tmp_path: Path) -> None:
    async with house_of(tmp_path) as house:
        for name in HARD:
            (house.workspace() / name).unlink()
        await house.say("/remember WITNESS of a note", sender=ALICE, chat=ALICE_CHAT)
        await house.replies(1)
        names = named(house.workspace(), *NAMES, *ODD)
        for chat, (sees, who) in CHATS.items():
            before = set(house.feishu.resources)
            for some in (names[:9], names[9:18], names[18:]):
                house.anthropic.script = [says("Here.\n\n" + "\n".join(f"MEDIA: {name}" for name in some))]
                await house.say("send them", **who)
                await house.idle()
            answers = len(house.feishu.messages)
            await house.say("/export", **who)
            await house.replies(answers + 1)
            await house.idle()
            sent = [it.data for key, it in house.feishu.resources.items() if key not in before]
            assert any(b"WITNESS of" in it for it in sent) == sees, chat
            assert any(b"send them" in it for it in sent), chat  # the export


@pytest.mark.parametrize("share", [2, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", WALLS[:2])
@pytest.mark.parametrize("chat", GROUPS)
async def test_private_files_are_invisible_to_exec_in_a_group(
    tmp_path: Path, chat: str, kind: WallKind, share: int
) -> None:
    """In the owner's groups one half of the commands, in the others' the other; `make test-all` has all everywhere."""
    async with walled(tmp_path, kind) as house:
        some = slice(list(GROUPS).index(chat) % share, None, share)
        answers = await runs(house, COMMANDS[:2][some], COMMANDS[some], **GROUPS[chat])
        assert "[exit code" in answers[0]
        assert not leaked(house, answers)
        assert untouched(house)


@pytest.mark.parametrize("kind", WALLS[:2])
async def test_private_files_are_found_by_exec_in_a_direct_chat(tmp_path: Path, kind: WallKind) -> None:
    async with walled(tmp_path, kind) as house:
        for command, (chat, who) in zip(COMMANDS, DIRECT.items(), strict=False):
            answers = await runs(house, [command], COMMANDS[:2], **who)
            assert all("WITNESS of" in it for it in answers), chat


@asynccontextmanager
async def walled(folder: Path, kind: WallKind) -> AsyncIterator[Running]:
    async with house_of(folder) as house:
        for name in HARD:
            (house.workspace() / name).unlink()
        (runner,) = house.gateway.runtime.setup.runners.values()
        runner._built_in.ports = replace(runner._built_in.ports, sandbox=wall(kind))
        yield house


async def runs(house: Running, behind: Sequence[str], before: Sequence[str], **who: Any) -> list[str]:
    """What these commands give: those that are waited for, and then those that run in the background."""
    started: list[Wanted] = [("process", {"action": "start", "command": it}) for it in behind]
    answers = await does(house, [*started, *(("exec", {"command": it}) for it in before)], **who)
    ids = [it.split()[2].rstrip(";") for it in answers[: len(started)]]
    ended = await does(house, [("process", {"action": "poll", "id": it, "wait_seconds": 30}) for it in ids], **who)
    return [*answers[len(started) :], *ended]
