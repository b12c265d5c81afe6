"""What people want comes first: brakes and decisions take effect when they are accepted, whatever else waits to be sent to
their chat, and nobody waits for what programs, schedules and the gateway itself send there."""

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from channels.channel import Channel, RateLimited, Unreachable
from channels.message import Outbound
from gateway.approvals.notices import Notice
from gateway.operate import schedules
from gateway.store.approvals import Decider
from gateway.store.errors import StoreUnavailable
from gateway.store.inbound import Inbound
from gateway.store.sessions import is_control
from tests.emulators.models.script import calls, says
from tests.emulators.models.server import Reply
from tests.running import AGENTS, ALICE, ALICE_CHAT, BOB, GROUP, Running, running
from tests.stories.approvals.test_approvals import IN_GROUP, state
from tests.stories.at_work import NEVER, results, users
from tests.stories.channels.test_telegram import Bot, bot
from tests.stories.http.test_api_send import API, send
from tests.stories.inbox.test_hooks import call, hooks, signed
from tests.stories.later.test_tasks import PARENT, start
from tests.stories.later.test_tasks import task_of as newest_task
from tests.stories.store.test_replicas import two
from tests.stories.turns.test_compaction import summed
from tests.waiting import PATIENCE_SECONDS

TELEGRAM_ALICE = 500000011
WITH_TASKS = AGENTS.replace("exec, message] }", "exec, task, message] }\n      compaction: { keepTurns: 1 }")
MORE = f'approvals: {{ approvers: ["feishu:{ALICE}", "telegram:{TELEGRAM_ALICE}"] }}\n{API}'
QUICK = "limits: { graceSeconds: 0.1 }"
"""A gateway that is closed at the end of a test waits for no turn."""
RUN = ("exec", {"command": "echo ran"})
SEND_COUNT = 20


def model(body: dict[str, Any]) -> Reply:
    """Runs a command for "run", begins a task for "begin", never ends "work", tasks and summaries, and hides a decision."""
    words = users(body)[-1] if users(body) else ""
    if summed(body) or "This is the task" in words or words.endswith("work"):
        return NEVER
    if body["messages"][-1]["role"] == "user" and "tool_result" in str(body["messages"][-1]):
        return says("__SILENT__" if "denied" in results(body)[-1] else "it waits")
    if words.endswith("run"):
        return calls(("exec", {"command": f"echo {len(body['messages'])}"}))
    return calls(start("look")) if words.endswith("begin") else says("heard")


@dataclass
class Chat:
    """One person's direct chat, on either platform. `held` are the sends that an obstacle keeps back."""

    house: Running
    channel: Channel
    bot: Bot | None = None
    held: list[Outbound] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def session(self) -> str:
        return f"agent:helper:telegram:default:{TELEGRAM_ALICE}" if self.bot else PARENT

    async def say(self, text: str) -> None:
        if self.bot:
            await self.bot.happens(self.bot.telegram.text_update(text, chat=TELEGRAM_ALICE))
        else:
            await self.house.say(text)

    async def press(self, place: int, label: str) -> None:
        """Press a button of the request number `place`."""
        if self.bot:
            sent = [it for it in self.bot.telegram.messages if it.reply_markup][place]
            keys = {it["text"]: it["callback_data"] for (it,) in (sent.reply_markup or {})["inline_keyboard"]}
            await self.bot.happens(self.bot.telegram.press_update(sent.message_id, keys[label], chat=TELEGRAM_ALICE))
            return
        card = [it.message_id for it in self.house.feishu.messages if "/approve" in it.text][place]
        await self.house.push(self.house.feishu.press_event(card, label, sender=ALICE))

    def texts(self) -> list[str]:
        return self.bot.telegram.shown(TELEGRAM_ALICE) if self.bot else self.house.feishu.shown(ALICE_CHAT)

    async def requests(self, count: int) -> list[str]:
        """The ids of the requests for approval, once there are so many."""
        await self.house.until(lambda: len(re.findall(r"/approve (\S+) deny", "\n".join(self.texts()))) >= count)
        await self.house.idle()
        return re.findall(r"/approve (\S+) deny", "\n".join(self.texts()))

    async def at_work(self) -> None:
        lanes = self.house.gateway.runtime.control.lanes
        await self.house.until(lambda: self.session in lanes and lanes[self.session].turn is not None)

    async def at_rest(self) -> None:
        lanes = self.house.gateway.runtime.control.lanes
        await self.house.until(lambda: self.session not in lanes)

    async def stopped(self) -> None:
        """Wait until no turn runs; without an account what waits stays where it is."""
        lanes = self.house.gateway.runtime.control.lanes
        await self.house.until(lambda: self.session not in lanes or lanes[self.session].turn is None)


@asynccontextmanager
async def chat(folder: Path, platform: str) -> AsyncIterator[Chat]:
    if platform == "feishu":
        async with running(folder, script=model, agents=WITH_TASKS, more=MORE) as house:
            yield Chat(house, house.gateway.runtime.setup.channels["feishu", "default"])
        return
    async with bot(folder, "polling", script=model, agents=WITH_TASKS, more=MORE) as it:
        it.telegram.private(TELEGRAM_ALICE)
        yield Chat(it.house, it.house.gateway.runtime.setup.channels["telegram", "default"], it)


async def undeliverable(chat: Chat) -> None:
    await _withheld(chat, lambda: Unreachable("the platform answers 503", maybe_arrived=False))
    await chat.say("/help")
    await chat.house.until(lambda: chat.held)


async def rate_limited(chat: Chat) -> None:
    await _withheld(chat, lambda: RateLimited("slow down", retry_after_seconds=300.0))
    await chat.say("/help")
    await chat.house.until(lambda: chat.held)


async def account_away(chat: Chat) -> None:
    """An edit of the config has taken the account away between the acceptance of a command and its reply."""
    await _withheld(chat, lambda: Unreachable("no such account", maybe_arrived=False))
    setup = chat.house.gateway.runtime.setup
    await chat.say("/help")
    await chat.house.until(lambda: chat.held)
    object.__setattr__(setup, "channels", Without(setup.channels, chat.channel))


class Without(dict[tuple[str, str], Channel]):
    """The accounts of a config; the outbox finds one of them no more."""

    def __init__(self, channels: Any, gone: Channel) -> None:
        super().__init__(channels)
        self._gone = gone

    def get(self, key: Any, default: Any = None) -> Any:
        found = super().get(key, default)
        return default if found is self._gone else found


async def compacting(chat: Chat) -> None:
    before = len(chat.house.anthropic.requests)
    await chat.say("/compact")
    await chat.house.requested(before + 1)


async def sends_queued(chat: Chat) -> None:
    """A program's messages to that chat, the first of which is on its way until the test is over."""

    async def stuck(part: Outbound, key: str) -> str:
        chat.held.append(part)
        await chat.over.wait()
        raise Unreachable("the platform answers 503", maybe_arrived=False)

    chat.channel.send = stuck  # type: ignore[method-assign]
    to = f"telegram:{TELEGRAM_ALICE}" if chat.bot else f"feishu:{ALICE_CHAT}"
    sends = [
        asyncio.create_task(send(chat.house, {"to": to, "text": f"build {number}"})) for number in range(SEND_COUNT)
    ]
    await chat.house.until(lambda: chat.held)
    for it in sends:
        it.cancel()


async def _withheld(chat: Chat, error: Callable[[], Exception]) -> None:
    async def refuse(part: Outbound, key: str) -> str:
        chat.held.append(part)
        raise error()

    chat.channel.send = refuse  # type: ignore[method-assign]


OBSTACLES = (undeliverable, rate_limited, account_away, compacting, sends_queued)


@pytest.mark.parametrize("platform", ["feishu", "telegram"])
@pytest.mark.parametrize("obstacle", OBSTACLES)
async def test_stop_and_decisions_take_effect_despite_queued_sends(
    tmp_path: Path, platform: str, obstacle: Callable[[Chat], Awaitable[None]]
) -> None:
    async with chat(tmp_path, platform) as it:
        house = it.house
        for count in (1, 2):
            await it.say("run")
            ids = await it.requests(count)
        await it.say("begin")
        task = await newest_task(house, it.session)
        await house.until(lambda: any("Started task" in str(found.body) for found in house.anthropic.requests))
        await it.at_rest()
        await it.say("work")
        await it.at_work()
        await obstacle(it)

        async def becomes(id_: str, wanted: str) -> None:
            while await state(house, id_) != wanted:
                await asyncio.sleep(0.01)

        async with asyncio.timeout(PATIENCE_SECONDS):
            await it.say(f"/approve {ids[0]} deny")
            await becomes(ids[0], "denied")
            await it.press(1, "Deny")
            await becomes(ids[1], "denied")
            await it.say(f"/stop {task.id}")
            while (await newest_task(house, it.session)).state != "stopped":
                await asyncio.sleep(0.01)
            await it.say("/stop")
            await it.stopped()
            await it.say("/new")
            while "new" not in marks(house, it.session):
                await asyncio.sleep(0.01)
            if obstacle is not account_away:  # nobody is answered without an account
                before = len(house.anthropic.requests)
                await it.say("fresh")
                await house.requested(before + 1)
                words = [words.rpartition("\n")[2] for words in users(house.anthropic.requests[-1].body)]
                assert [it[-5:] for it in words] == ["fresh"]
        it.over.set()


def marks(house: Running, session: str) -> list[str]:
    with sqlite3.connect(house.folder / "data" / "clawgate.db") as database:
        return [kind for (kind,) in database.execute("SELECT kind FROM mark WHERE sid = ?", (session,))]


async def talk(house: Running, text: str, **who: Any) -> str:
    """Somebody writes; the next reply."""
    before = len(house.feishu.messages)
    await house.say(text, **who)
    return (await house.replies(before + 1))[before]


async def test_stop_reports_what_it_stopped_in_a_delayed_reply(tmp_path: Path) -> None:
    async with running(tmp_path, script=model, agents=WITH_TASKS, more=MORE) as house:
        it = Chat(house, house.gateway.runtime.setup.channels["feishu", "default"])
        send_now = it.channel.send
        await it.say("work")
        await it.at_work()
        await it.say("and this")
        await undeliverable(it)
        await it.say("/stop")
        await it.at_rest()
        it.channel.send = send_now  # type: ignore[method-assign]
        _, reply = await house.replies(2)
        assert reply == "Stopped.\n\n1 waiting message was dropped:\n- “and this”"
        assert await talk(house, "/stop") == "Nothing is running."


async def test_stop_with_a_delayed_reply_spares_later_turns(tmp_path: Path) -> None:
    async with running(tmp_path, script=model, agents=WITH_TASKS, more=f"{MORE}{QUICK}") as house:
        it = Chat(house, house.gateway.runtime.setup.channels["feishu", "default"])
        send_now = it.channel.send

        async def hold_help(part: Outbound, key: str) -> str:
            if "every command" not in part.text:
                return await send_now(part, key)
            it.held.append(part)
            raise Unreachable("the platform answers 503", maybe_arrived=False)

        it.channel.send = hold_help  # type: ignore[method-assign]
        await it.say("work")
        await it.at_work()
        await it.say("/help")
        await house.until(lambda: it.held)
        await it.say("/stop")
        await it.at_rest()
        await it.say("begin")
        task = await newest_task(house, PARENT)
        await house.replies(1)
        await it.say("run")
        await house.replies(2)
        (approval,) = await house.gateway.runtime.store.approvals.open_in([PARENT])
        await it.say("other work")
        await it.at_work()
        turn = house.gateway.runtime.control.lanes[PARENT].number
        it.channel.send = send_now  # type: ignore[method-assign]
        await house.until(lambda: "Stopped." in house.feishu.shown(ALICE_CHAT))
        assert (await newest_task(house, PARENT)).id == task.id
        assert (await newest_task(house, PARENT)).state == "running"
        assert await state(house, approval.id) == "pending"
        lane = house.gateway.runtime.control.lanes[PARENT]
        assert (lane.number, lane.stopping) == (turn, False)


async def test_stop_is_retried_when_the_database_refuses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, script=model, agents=WITH_TASKS, more=QUICK) as house:
        it = Chat(house, house.gateway.runtime.setup.channels["feishu", "default"])
        turns, failed = house.gateway.lanes._turns, list[int]()
        take_effect = turns.take_effect

        async def once_away(session: str, turn: int, inbound: Inbound) -> None:
            if not failed:
                failed.append(turn)
                raise StoreUnavailable("away")
            await take_effect(session, turn, inbound)

        await it.say("work")
        await it.at_work()
        await undeliverable(it)
        monkeypatch.setattr(turns, "take_effect", once_away)
        await it.say("/stop")
        await it.at_rest()
        assert failed


async def test_stop_passes_queued_commands(tmp_path: Path) -> None:
    more = "limits: { pendingPerSession: 3, pendingPerSender: 3, graceSeconds: 0.1 }"
    async with running(tmp_path, script=model, agents=WITH_TASKS, more=more) as house:
        it = Chat(house, house.gateway.runtime.setup.channels["feishu", "default"])
        await it.say("work")
        await it.at_work()
        await undeliverable(it)
        for _ in range(9):
            await it.say("/whoami")
        await it.say("/stop")
        await it.at_rest()


async def test_stop_redelivered_stops_no_later_turn(tmp_path: Path) -> None:
    async with running(tmp_path, script=model, agents=WITH_TASKS, more=QUICK) as house:
        it = Chat(house, house.gateway.runtime.setup.channels["feishu", "default"])
        event = house.feishu.text_event("/stop", sender=ALICE, chat=ALICE_CHAT)
        await it.say("work")
        await it.at_work()
        await house.push(event)
        await house.replies(1)
        await it.say("other work")
        await it.at_work()
        turn = house.gateway.runtime.control.lanes[PARENT].number
        await undeliverable(it)
        assert (await house.push(event)).status_code == 200
        lane = house.gateway.runtime.control.lanes[PARENT]
        assert (lane.number, lane.stopping) == (turn, False)


async def test_stop_ends_a_compaction_and_says_so(tmp_path: Path) -> None:
    async with running(tmp_path, script=model, agents=WITH_TASKS) as house:
        for text in ("one", "two", "three"):
            await talk(house, text)
        it = Chat(house, house.gateway.runtime.setup.channels["feishu", "default"])
        await house.idle()
        await compacting(it)
        assert await talk(house, "/stop") == "Stopped.\n\nThese commands were stopped too:\n- `/compact`"
        await house.idle()
        assert marks(house, PARENT) == []
        assert await talk(house, "/stop") == "Nothing is running."


@pytest.mark.parametrize("brake", ["/stop", "/new"])
@pytest.mark.parametrize("where", ["conversation", "task"])
async def test_stop_by_a_group_member_cancels_no_approval_of_another(tmp_path: Path, brake: str, where: str) -> None:
    carol = "ou_ca401000000000000000000000000000"

    def script(body: dict[str, Any]) -> Reply:
        words = users(body)[-1]
        if "tool_result" in str(body["messages"][-1]) or words.endswith("hello"):
            return says("here")
        if where == "task" and "This is the task" not in words:
            return calls(start("look"))
        return calls(RUN)

    async with running(tmp_path, script=script, agents=WITH_TASKS, more=MORE) as house:
        await talk(house, "hello", sender=ALICE)
        await house.say("run it", sender=BOB, **IN_GROUP)
        await house.until(lambda: "/approve" in "".join(house.feishu.shown(ALICE_CHAT)))
        await house.until(lambda: house.feishu.shown(GROUP))
        await house.idle()
        (id_,) = set(re.findall(r"/approve (\S+) deny", house.feishu.shown(ALICE_CHAT)[-1]))
        waits = f"These approval requests belong to someone else and are still pending:\n- `{id_}`"
        reply = await talk(house, brake, sender=carol, **IN_GROUP)
        assert reply.endswith(waits)
        assert reply.startswith("Nothing is running." if brake == "/stop" else "New conversation started.")
        assert await state(house, id_) == "pending"
        reply = await talk(house, brake, sender=BOB, **IN_GROUP)
        assert "waits" not in reply
        assert (
            "These approval requests were cancelled too" if where == "conversation" else "These tasks were stopped too"
        ) in reply
        while await state(house, id_) != "cancelled":
            await asyncio.sleep(0.01)


async def test_stop_wins_over_a_concurrent_approval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, script=model, agents=WITH_TASKS, more=MORE) as house:
        it = Chat(house, house.gateway.runtime.setup.channels["feishu", "default"])
        await it.say("run")
        (id_,) = await it.requests(1)
        approvals = house.gateway.runtime.store.approvals
        cancel, by = approvals.cancel, Decider(person=f"feishu:{ALICE}")

        async def approved_before(*request: Any, **more: Any) -> Any:
            await approvals.decide(id_, "allow-once", by, at=0.0, grant=None)
            return await cancel(*request, **more)

        monkeypatch.setattr(approvals, "cancel", approved_before)
        assert [found.id for found in await house.gateway.approvals.cancel(PARENT, 1000)] == [id_]
        assert await state(house, id_) == "cancelled"


async def test_stop_takes_effect_at_the_other_replica_while_its_reply_waits(tmp_path: Path, postgres_url: str) -> None:
    async with two(tmp_path, postgres_url, model, agents=WITH_TASKS) as (one, other):
        here = Chat(one, one.gateway.runtime.setup.channels["feishu", "default"])
        there = Chat(other, other.gateway.runtime.setup.channels["feishu", "default"])
        await here.say("work")
        await here.at_work()
        await undeliverable(there)
        await there.say("/stop")
        await here.at_rest()


async def test_stop_ends_a_compaction_at_the_other_replica(tmp_path: Path, postgres_url: str) -> None:
    async with two(tmp_path, postgres_url, model, agents=WITH_TASKS) as (one, other):
        for text in ("one", "two", "three"):
            await talk(one, text)
            await one.idle()
        here = Chat(one, one.gateway.runtime.setup.channels["feishu", "default"])
        await compacting(here)
        await other.say("/stop")
        assert (await one.replies(4))[3] == "Stopped.\n\nThese commands were stopped too:\n- `/compact`"


async def test_stop_redelivered_takes_effect_if_its_worker_died(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(session: str, turn: int, inbound: object) -> None:
        """The process dies between the commit and the effect."""

    async with two(tmp_path, postgres_url, model, agents=WITH_TASKS) as (one, other):
        here = Chat(one, one.gateway.runtime.setup.channels["feishu", "default"])
        await here.say("work")
        await here.at_work()
        await undeliverable(here)
        monkeypatch.setattr(other.gateway.lanes._turns, "take_effect", nothing)
        event = one.feishu.text_event("/stop", sender=ALICE, chat=ALICE_CHAT)
        await other.push(event)
        lane = one.gateway.runtime.control.lanes[PARENT]
        assert not lane.stopping
        await one.push(event)
        await here.at_rest()


async def test_stop_stored_before_a_restart_takes_effect_before_queued_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(session: str, turn: int, inbound: object) -> None:
        """The process dies between the commit and the effect."""

    async def refuse(part: Outbound, key: str) -> str:
        raise Unreachable("the platform answers 503", maybe_arrived=False)

    async with running(tmp_path, script=model, agents=WITH_TASKS, more=QUICK) as house:
        it = Chat(house, house.gateway.runtime.setup.channels["feishu", "default"])
        await it.say("work")
        await it.at_work()
        await undeliverable(it)
        monkeypatch.setattr(house.gateway.lanes._turns, "take_effect", nothing)
        await it.say("/stop")
    monkeypatch.setattr(type(it.channel), "send", lambda self, part, key: refuse(part, key))
    async with running(tmp_path, script=model, agents=WITH_TASKS, more=QUICK) as house:
        it = Chat(house, house.gateway.runtime.setup.channels["feishu", "default"])
        await it.at_rest()
        assert any(is_control(sid) for sid in house.gateway.runtime.control.lanes)


HOOK = hooks(to=f"feishu:{ALICE_CHAT}", say="Aside: the build {{ body.state }}")
REMINDER = f'schedules: [ {{ id: stand, to: "feishu:{ALICE_CHAT}", at: "every 1d", say: "Aside: stand up" }} ]'
LATE = f'owners: ["feishu:{ALICE}"]\n{API}{HOOK}\n{REMINDER}\n{QUICK}'


async def by_program(house: Running) -> None:
    asyncio.get_running_loop().create_task(send(house, {"to": f"feishu:{ALICE_CHAT}", "text": "Aside: deployed"}))


async def by_hook(house: Running) -> None:
    body = b'{"state": "failed"}'
    assert (await call(house, body, signed(body))).status_code == 202


async def by_reminder(house: Running) -> None:
    schedules.run(house.gateway.config, "stand")
    house.gateway.wake()


async def by_notice(house: Running) -> None:
    await house.gateway.tell_owners(Notice(cause="test", en="Aside: look", zh="Aside: look"))


@pytest.mark.parametrize("at_work", [False, True], ids=["idle", "at work"])
@pytest.mark.parametrize("way", [by_program, by_hook, by_reminder, by_notice])
async def test_queue_serves_people_before_scheduled_sends(
    tmp_path: Path, way: Callable[[Running], Awaitable[None]], at_work: bool
) -> None:
    async with running(tmp_path, script=model, agents=WITH_TASKS, more=LATE) as house:
        it = Chat(house, house.gateway.runtime.setup.channels["feishu", "default"])
        send_now = it.channel.send

        async def only_people(part: Outbound, key: str) -> str:
            if not part.text.startswith("Aside"):
                return await send_now(part, key)
            it.held.append(part)
            raise RateLimited("slow down", retry_after_seconds=300.0)

        it.channel.send = only_people  # type: ignore[method-assign]
        await house.until(lambda: house.gateway.runtime.store.later.every())
        assert await talk(house, "hello") == "heard"
        if at_work:
            await it.say("work")
            await it.at_work()
        await way(house)
        await house.until(lambda: it.held)
        if at_work:
            assert await talk(house, "/stop") == "Stopped."
        assert await talk(house, "hello again") == "heard"
        assert f"feishu:{ALICE}" in await talk(house, "/whoami")


async def test_queue_lets_a_reply_pass_a_programs_message_in_order(tmp_path: Path) -> None:
    async with running(tmp_path, script=model, agents=WITH_TASKS, more=API) as house:
        it = Chat(house, house.gateway.runtime.setup.channels["feishu", "default"])
        send_now, slowed, waiting = it.channel.send, list[str](), asyncio.Event()

        async def slow(part: Outbound, key: str) -> str:
            if part.text.startswith("build") or slowed:
                return await send_now(part, key)
            slowed.append(part.text)
            waiting.set()
            raise RateLimited("slow down", retry_after_seconds=0.5)

        it.channel.send = slow  # type: ignore[method-assign]
        await it.say("hello")
        await waiting.wait()
        for number in range(3):
            sent = asyncio.create_task(send(house, {"to": f"feishu:{ALICE_CHAT}", "text": f"build {number}"}))
            await house.until(partial(queued, house, number + 2))
        await sent
        assert await house.replies(4) == ["heard", "build 0", "build 1", "build 2"]


async def queued(house: Running, count: int) -> bool:
    """True once so many messages and parts wait."""
    backlog = await house.gateway.runtime.store.backlog()
    return backlog.messages + backlog.parts >= count
