"""Budgets and rates, through the real door: what is refused, who reads why, and when it goes on."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agents.messages import Usage
from channels.message import MessageContext
from gateway.app.gateway import DEDUPE_SECONDS
from gateway.store.errors import StoreUnavailable
from gateway.turns.budgets import used
from tests.emulators.models.script import Turn, calls, says
from tests.running import ALICE, ALICE_CHAT, BOB, BOB_CHAT, GROUP, Running, running
from tests.stories.at_work import users
from tests.stories.channels.test_telegram import PUBLIC, bot
from tests.stories.store.test_replicas import two
from tests.web_page import WEB, opened

COST = Usage(input=60, cache_read=20, output=20)
"""A hundred tokens."""


class Clock:
    """Runs on as it does, from where a test sets it."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


def hundred(text: str) -> Turn:
    return says(text, usage=COST)


@asynccontextmanager
async def house_with(folder: Path, more: str, url: str = "", clock: Clock | None = None) -> AsyncIterator[Running]:
    """Each answer takes a hundred tokens and says what it answers."""
    database = f'database: {{ url: "{url}" }}' if url else ""
    config = f"server: {{ timezone: Asia/Shanghai }}\n{database}\n{more}"
    clock = clock or Clock()
    async with running(folder, script=echo, more=config, now=clock) as house:
        house.feishu.now = clock
        yield house


def echo(body: Any) -> Turn:
    return hundred(f"re {users(body)[-1].split()[-1]}")


async def written(house: Running, text: str, **who: Any) -> str:
    """What the bot says to it."""
    before = len(house.feishu.messages)
    await house.say(text, **who)
    reply = (await house.replies(before + 1))[-1]
    await house.idle()
    return reply


async def test_budget_used_up_refuses_until_the_next_day(tmp_path: Path, database_url: str) -> None:
    clock = Clock()
    async with house_with(tmp_path, "budgets: { sender: { tokensPerDay: 230 } }", database_url, clock) as house:
        assert await written(house, "one") == "re one"
        warned = await written(house, "two")
        assert warned == "re two\n\n(86 % of your budget for today is used. It resets at 00:00 CST.)"
        assert await written(house, "three", chat=BOB_CHAT) == "re three"
        refusal = "Your budget for today is used up. It resets at 00:00 CST; please write to me then."
        assert await written(house, "four") == refusal
        assert await written(house, "你好") == "你今天的额度已经用完，00:00 CST 重置，届时再聊。"
        assert await written(house, "five", sender=BOB, chat=BOB_CHAT) == "re five"
        assert len(house.anthropic.requests) == 4
        assert house.counted('clawgate_refusals_total{kind="sender-budget"} 2.0')
        clock.ahead = 25 * 3600.0
        assert await written(house, "six") == "re six"
        assert "four" not in str(house.anthropic.requests[-1].body)
        assert "two" in str(house.anthropic.requests[-1].body)


@pytest.mark.parametrize(("whose", "other"), [("agent", "This agent's"), ("chat", None), ("sender", None)])
async def test_budget_applies_to_its_own_scope_only(tmp_path: Path, whose: str, other: str | None) -> None:
    async with house_with(tmp_path, f"budgets: {{ {whose}: {{ tokensPerDay: 100 }} }}") as house:
        assert (await written(house, "one")).startswith("re one\n\n(100 % of")
        assert "used up" in await written(house, "two")
        reply = await written(house, "three", sender=BOB, chat=BOB_CHAT)
        assert reply.startswith(f"{other} budget for today is used up." if other else "re three")


async def test_budget_used_up_mid_turn_stops_and_keeps_what_was_done(tmp_path: Path, database_url: str) -> None:
    clock = Clock()
    async with house_with(tmp_path, "budgets: { chat: { tokensPerDay: 150 } }", database_url, clock) as house:
        write = ("write", {"file_path": "a.txt", "content": "x"})
        house.anthropic.script = [calls(write, usage=COST), calls(("ls", {}), usage=COST), says("never")]
        reply = await written(house, "do it")
        assert reply.startswith("I stopped here; what is done is saved. This chat's budget for today is used up.")
        assert len(house.anthropic.requests) == 2
        clock.ahead = 25 * 3600.0
        house.anthropic.script = [hundred("done")]
        await written(house, "go on")
        assert "Wrote a.txt" in str(house.anthropic.requests[-1].body)


async def test_budget_counts_billed_failed_attempts_and_money(tmp_path: Path) -> None:
    more = """
models: { anthropic/claude-sonnet-4-6: { prices: { input: 1000, output: 10000, cacheRead: 0 } } }
budgets: { agent: { costPerDay: 0.5 }, sender: { tokensPerDay: 1000 } }
retry: { pauseSeconds: 0.01 }
"""
    async with house_with(tmp_path, more) as house:
        half = hundred("half of an answer that breaks off in the middle of it")
        house.anthropic.script = [replace(half, cut_after=6), hundred("whole")]
        reply = await written(house, "one")
        assert reply.startswith("whole")
        (agent, sender) = await used(house.gateway.runtime, house.gateway.config, "helper", message(house))
        assert (agent.whose, sender.whose) == ("agent", "sender")
        assert sender.tokens > 100
        assert agent.cost > 0.26
        assert (sender.tokens_max, agent.cost_max) == (1000, 0.5)


async def test_budget_per_month_outlives_days_and_restarts(tmp_path: Path, database_url: str) -> None:
    more = """
models: { anthropic/claude-sonnet-4-6: { prices: { input: 1000, cacheRead: 1000, output: 1000 } } }
budgets: { sender: { costPerMonth: 0.25, costPerDay: 0.2 } }
"""
    clock = Clock()
    clock.ahead = datetime(2027, 1, 20, 12, tzinfo=UTC).timestamp() - time.time()
    async with house_with(tmp_path, more, database_url, clock) as house:
        assert await written(house, "one") == "re one"
    clock.ahead += 86400
    async with house_with(tmp_path, more, database_url, clock) as house:
        warned = await written(house, "two")
        assert warned == "re two\n\n(80 % of your budget for this month is used. It resets on 2027-02-01.)"
        clock.ahead += 9 * 86400
        await house.gateway.runtime.store.prune(clock() - DEDUPE_SECONDS)
        assert await written(house, "three") == "re three"
        refusal = "Your budget for this month is used up. It resets on 2027-02-01; please write to me then."
        assert await written(house, "four") == refusal
        usage = await written(house, "/usage")
        assert "- Budget of today (you): 50% ($0.1000 / $0.2000) used, resets at 00:00 CST" in usage
        assert "- Budget of this month (you): 120% ($0.3000 / $0.2500) used, resets on 2027-02-01" in usage
        assert await written(house, "你好") == "你本月的额度已经用完，2027-02-01 重置，届时再聊。"
        assert house.counted('clawgate_refusals_total{kind="sender-month-budget"} 2.0')
        assert len(house.anthropic.requests) == 2
        clock.ahead += 2 * 86400
        assert await written(house, "five") == "re five"


def message(house: Running) -> MessageContext:
    """As Alice writes in her chat."""
    started = next(event for event in house.events if type(event).__name__ == "TurnStarted")
    context: MessageContext = started.turn.context  # type: ignore[union-attr]
    return context


async def test_budget_refusal_of_collected_messages_is_sent_once(
    tmp_path: Path,
) -> None:
    budget = "budgets: { sender: { tokensPerDay: 100 } }"
    async with house_with(tmp_path, budget) as house:
        group: dict[str, Any] = {"chat": GROUP, "chat_type": "group", "mention_bot": True}
        assert (await written(house, "one", **group)).startswith("re one")
        house.line.hold()
        await house.say("two", sender=BOB, **group)
        await house.requested(2)
        for text, sender in (("three", ALICE), ("five", ALICE), ("four", "ou_c1d")):
            await house.say(text, sender=sender, **group)
        house.line.release()
        _, two_, five, four = await house.replies(4)
        assert two_.startswith("re two")
        assert five.startswith("Your budget")
        assert four.startswith("re four")
        await house.idle()
        assert len(house.feishu.messages) == 4
        assert (await house.gateway.runtime.store.backlog()).oldest is None


async def test_budget_is_shared_by_replicas_and_warns_once(tmp_path: Path, postgres_url: str) -> None:
    async with two(tmp_path, postgres_url, echo, "budgets: { agent: { tokensPerDay: 1000 } }") as houses:
        for number in range(12):
            chat = f"oc_{number:030}"
            await houses[number % 2].say(f"n{number}", chat=chat)
            if number >= 8:
                await houses[0].replies(number + 1)
        replies = await houses[0].replies(12)
        for house in houses:
            await house.idle()
        assert sum("% of this agent's budget" in reply for reply in replies) == 1
        assert len(houses[0].anthropic.requests) == 10
        (agent,) = await used(houses[1].gateway.runtime, houses[1].gateway.config, "helper", message(houses[0]))
        assert agent.tokens == 1000


async def test_budget_warning_cut_off_by_a_crash_is_sent_on_resume(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house_with(tmp_path, "budgets: { sender: { tokensPerDay: 230 } }", database_url) as house:
        assert await written(house, "one") == "re one"
        store, deaths = house.gateway.runtime.store, ["between the claim of the warning and the reply"]
        finish = store.finish

        async def finish_once_dead(*args: Any, **names: Any) -> Any:
            if deaths:
                raise StoreUnavailable(deaths.pop())
            return await finish(*args, **names)

        monkeypatch.setattr(store, "finish", finish_once_dead)
        assert (await written(house, "two")).startswith("re two\n\n(86 % of your budget")


async def test_rate_limit_says_when_to_go_on_and_ignores_commands(tmp_path: Path, database_url: str) -> None:
    clock = Clock()
    rates = "rates: { sender: 3/1m, chat: 4/10m }\nqueue: { mode: followup }"
    async with house_with(tmp_path, rates, database_url, clock) as house:
        for text in ("one", "two", "three"):
            assert await written(house, text) == f"re {text}"
        reply = await written(house, "four", chat=BOB_CHAT)
        assert reply.startswith("That was a lot at once. Please wait ")
        assert reply.endswith(" s; I will not see messages sent before then.")
        event = house.feishu.text_event("five", sender=ALICE, chat=ALICE_CHAT)
        for _ in range(2):
            assert (await house.push(event)).status_code == 200
        assert "Nothing is running" in await written(house, "/stop")
        assert await written(house, "six", sender=BOB) == "re six"
        assert "聊天的消息太多了" in await written(house, "七", sender=BOB)
        assert await written(house, "eight", sender=BOB, chat=BOB_CHAT) == "re eight"
        assert house.counted('clawgate_refusals_total{kind="sender-rate"} 2.0')
        assert house.counted('clawgate_refusals_total{kind="chat-rate"} 1.0')
        clock.ahead = 61.0
        assert await written(house, "nine", chat=BOB_CHAT) == "re nine"
        assert len(house.anthropic.requests) == 6
        assert "four" not in str([request.body for request in house.anthropic.requests])


async def test_rate_limit_and_budget_refusals_show_in_the_web_chat(tmp_path: Path) -> None:
    more = "budgets: { chat: { tokensPerDay: 100 } }\nrates: { sender: 2/1h }"
    async with running(tmp_path, script=echo, more=more, feishu=WEB) as house, opened(house.url) as page:
        for number, text in enumerate(("one", "two", "three"), start=1):
            await page.say(text)
            await page.answers(number)
        _, refused, too_fast = await page.answers(3)
        assert refused.startswith("This chat's budget for today is used up. It resets at 00:00 UTC")
        assert too_fast.startswith("That was a lot at once. Please wait 60 min;")
        assert len(house.anthropic.requests) == 1


WAYS = ["words", "/retry", "/edit other words", "/skill translate hello", "/compact", "a press"]
LIMITS = [
    ("rates: { sender: 4/1h }", "That was a lot at once."),
    ("rates: { chat: 4/1h }", "This chat is too busy for me."),
    ("budgets: { sender: { tokensPerDay: 400 } }", "Your budget for today is used up."),
    ("budgets: { chat: { tokensPerDay: 400 } }", "This chat's budget for today is used up."),
    ("budgets: { agent: { tokensPerDay: 400 } }", "This agent's budget for today is used up."),
]


EVERYWHERE = [LIMITS[0], LIMITS[2]]
"""A rate and a budget. Whose it is no way knows."""


def named(what: tuple[str, str] | list[str]) -> str:
    return what[0].partition("}")[0] if isinstance(what, tuple) else ", ".join(what)


@pytest.mark.parametrize(
    ("limit", "ways"),
    [
        *((limit, WAYS if limit in EVERYWHERE else WAYS[:1]) for limit in LIMITS),
        *(pytest.param(limit, WAYS[1:], marks=pytest.mark.long) for limit in LIMITS if limit not in EVERYWHERE),
    ],
    ids=named,
)
async def test_budget_and_rate_limit_hold_on_every_way_to_a_model(
    tmp_path: Path, limit: tuple[str, str], ways: list[str]
) -> None:
    await end_at(tmp_path, f"sqlite:///{tmp_path}/data/clawgate.db", *limit, ways)


@pytest.mark.parametrize("ways", [WAYS[:1], pytest.param(WAYS[1:], marks=pytest.mark.long)], ids=named)
@pytest.mark.parametrize("limit", LIMITS, ids=named)
async def test_budget_and_rate_limit_hold_on_postgresql(
    tmp_path: Path, postgres_url: str, limit: tuple[str, str], ways: list[str]
) -> None:
    """The database counts, and knows of no way."""
    await end_at(tmp_path, postgres_url, *limit, ways)


async def end_at(tmp_path: Path, database_url: str, limit: str, sentence: str, ways: list[str]) -> None:
    """Each way on a day of its own, by somebody new: three messages have taken four answers of a hundred tokens, so that
    one more is within a rate, and none in a budget."""
    offer, clock = calls(("message", {"action": "buttons", "message": "Go?", "buttons": ["Yes"]}), usage=COST), Clock()
    async with house_with(tmp_path, limit, database_url, clock) as house:
        for number, way in enumerate(ways):
            who = {"sender": f"ou_{number:030}", "chat": f"oc_{number:030}"}
            house.anthropic.script = [offer, hundred("offered")]
            first = len(house.feishu.messages)
            await house.say("one", **who)
            await house.replies(first + 2)
            await house.idle()
            house.anthropic.script = echo
            for text in ("two", "three"):
                await written(house, text, **who)
            requests = [len(house.anthropic.requests)]
            for _ in range(3):
                if way == "a press":
                    card = house.feishu.messages[first].message_id
                    await house.push(house.feishu.press_event(card, "Yes", sender=who["sender"]))
                else:
                    await house.say("hello" if way == "words" else way, **who)
                await house.idle()
                requests.append(len(house.anthropic.requests))
            assert requests[3] == requests[2] <= requests[0] + 1, way
            told = [it.text for it in house.feishu.messages[first:] if it.text.startswith(sentence)]
            assert len(told) == 1 if limit.startswith("rates") else told, way
            clock.ahead += 25 * 3600.0


async def test_rate_limit_counts_an_edit_of_a_running_message(tmp_path: Path) -> None:
    async with bot(tmp_path, "webhook", script=echo, more=f"{PUBLIC}\nrates: {{ sender: 3/1h }}") as it:
        alice = it.telegram.private()
        it.house.line.hold()
        first = it.telegram.text_update("one", chat=alice)
        await it.happens(first)
        await it.house.requested(1)
        for text in ("two", "three", "four", "five", "six"):
            await it.happens(it.telegram.edit_update(first["message"]["message_id"], text, chat=alice))
        it.house.line.release()
        await it.house.idle()
        asked = " ".join(users(it.house.anthropic.requests[-1].body))
        assert [word in asked for word in ("two", "three", "four", "five", "six")] == [True, True, False, False, False]
        assert len([text for text in it.telegram.shown(alice) if text.startswith("That was a lot")]) == 1
