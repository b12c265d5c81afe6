"""Bots in a group, which are answered within bounds, and topics in which the bot needs no mention."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from channels.message import Chat
from gateway.store.sessions import is_owner, message_in
from tests.case import case
from tests.emulators.models.script import says
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.loopback import serve_on_loopback
from tests.running import AGENTS, ALICE, BOB, FEISHU, GROUP, Running, running
from tests.stories.at_work import users
from tests.stories.store.test_replicas import two

SECRET = "a-long-random-word_0123456789"
TEAM, TOPIC = -1002000000041, 7
PEER, PEER_APP, STRANGER = (
    "ou_9ee70000000000000000000000000",
    "cli_peer000000000001",
    "ou_57a90000000000000000000000000",
)
PEER_ACCOUNT = f"""
    accounts:
      other: {{ mode: webhook, appId: {PEER_APP}, appSecret: s, encryptKey: other-key, verificationToken: t }}
"""
FIRST = {"id": 7000000001, "is_bot": True, "first_name": "First", "username": "first_bot"}
SECOND = {"id": 7000000002, "is_bot": True, "first_name": "Second", "username": "second_bot"}
WHO = {"first": FIRST, "second": SECOND}


@dataclass
class Duet:
    """Two Telegram bots of one gateway in one group. `listening` carries what one says to the other, as Telegram does in
    bot-to-bot mode."""

    house: Running
    telegrams: dict[str, TelegramEmulator]
    carried: dict[str, int] = field(default_factory=dict)

    async def tell(self, name: str, text: str, sender: dict[str, Any], **more: Any) -> None:
        telegram = self.telegrams[name]
        telegram.people[sender["id"]] = sender
        update = telegram.text_update(text, chat=TEAM, sender=sender["id"], **more)
        url = f"{self.house.url}/webhooks/telegram/{name}"
        assert (await telegram.deliver_once(url, update, secret=SECRET)).status_code == 200

    async def listening(self) -> None:
        """Carry everything until nobody says anything more."""
        while True:
            await self.house.idle()
            fresh = [
                (name, it) for name, telegram in self.telegrams.items() for it in telegram.messages[self.said(name) :]
            ]
            if not fresh:
                return
            for name, sent in fresh:
                self.carried[name] = self.said(name) + 1
                other = next(it for it in self.telegrams if it != name)
                thread = {"thread": sent.thread} if sent.thread else {}
                await self.tell(other, sent.text, WHO[name], **thread)

    def said(self, name: str) -> int:
        return self.carried.get(name, 0)

    def count(self) -> int:
        return sum(len(it.messages) for it in self.telegrams.values())


@asynccontextmanager
async def duet(
    folder: Path, database: str, *, agents: str = AGENTS, more: str = "", telegrams: Any = None
) -> AsyncIterator[Duet]:
    """Each answer mentions both of them; with `telegrams` the group is there already."""
    made = {name: TelegramEmulator(token=f"{bot['id']}:{'A' * 35}", bot=bot) for name, bot in WHO.items()}
    telegrams = telegrams or made
    async with AsyncExitStack() as stack:
        section = "\n  telegram:\n    accounts:\n"
        for name, telegram in telegrams.items():
            if TEAM not in telegram.chats:
                telegram.supergroup(TEAM, forum=True)
            telegram.chats[TEAM].topics[TOPIC] = True
            url = await stack.enter_async_context(serve_on_loopback(telegram.app))
            section += (
                f'      {name}: {{ botToken: "{telegram.token}", apiRoot: "{url}", mode: webhook, '
                f"webhookSecret: {SECRET}, groupPolicy: open, streaming: off, quotes: off }}\n"
            )

        def model(body: Any) -> Any:
            return says("over to you @second_bot @first_bot")

        config: dict[str, Any] = {
            "more": f'server: {{ publicUrl: "https://bot.example.com" }}\ndatabase: {{ url: "{database}" }}\n{more}'
        }
        house = await stack.enter_async_context(
            running(folder, script=model, feishu=FEISHU + section, agents=agents, **config)
        )
        await house.until(lambda: all(it.webhook.url for it in telegrams.values()))
        yield Duet(house, telegrams, {name: len(it.messages) for name, it in telegrams.items()})


ALICE_THERE = {"id": 500000011, "is_bot": False, "first_name": "Alice"}


async def test_bots_of_a_gateway_stop_after_the_bound(tmp_path: Path, database_url: str) -> None:
    """Three answers to bots after each message of a person, also after a restart; a topic counts for itself."""
    async with duet(tmp_path, database_url) as it:
        with capture_logs() as logs:
            await it.tell("first", "@first_bot begin", ALICE_THERE)
            await it.listening()
        assert it.count() == 1 + 3
        assert [line["reason"] for line in logs if line["event"] == "message_not_admitted"] == ["bot-rounds"]
        await it.tell("first", "@first_bot again", SECOND)
        await it.listening()
        assert it.count() == 4
        await it.tell("second", "@second_bot go on", ALICE_THERE)
        await it.listening()
        assert it.count() == 8
        await it.tell("first", "@first_bot begin here", ALICE_THERE, thread=TOPIC)
        await it.listening()
        assert it.count() == 12
    async with duet(tmp_path, database_url, telegrams=it.telegrams) as it:
        await it.tell("first", "@first_bot after a restart", SECOND)
        await it.listening()
        assert it.count() == 12
        await it.tell("first", "@first_bot hello", ALICE_THERE)
        await it.listening()
        assert it.count() == 16


async def test_bot_edit_that_adds_the_mention_is_answered_once(tmp_path: Path) -> None:
    async with duet(tmp_path, f"sqlite:///{tmp_path}/data/clawgate.db") as it:
        first, url = it.telegrams["first"], f"{it.house.url}/webhooks/telegram/first"
        await it.tell("first", "I think", SECOND)
        message = first.chats[TEAM].last_message_id
        it.house.line.hold()
        for text in ("I think @first_bot knows", "I think @first_bot knows more"):
            edit = first.edit_update(message, text, chat=TEAM)
            assert (await first.deliver_once(url, edit, secret=SECRET)).status_code == 200
            await it.house.requested(1)
        it.house.line.release()
        await it.house.idle()
        assert (len(first.messages), len(it.house.anthropic.requests)) == (1, 1)


@pytest.mark.parametrize("most", [0, 1])
async def test_bot_rounds_hold_where_each_member_has_a_session(tmp_path: Path, most: int) -> None:
    agents, database = f"{AGENTS}      session: {{ scope: sender }}\n", f"sqlite:///{tmp_path}/data/clawgate.db"
    async with duet(tmp_path, database, agents=agents, more=f"limits: {{ botRounds: {most} }}") as it:
        for asked in (1, 2):
            await it.tell("first", "@first_bot begin", ALICE_THERE)
            await it.listening()
            assert it.count() == asked * (1 + most)


async def test_bot_rounds_are_exact_over_replicas(tmp_path: Path, postgres_url: str) -> None:
    """Bots that all speak at once, each in a separate session and to either replica."""
    feishu, agents = f"{FEISHU}    botsFrom: ['*']\n", f"{AGENTS}      session: {{ scope: sender }}\n"
    async with two(tmp_path, postgres_url, lambda _: says("heard"), feishu=feishu, agents=agents) as (one, other):
        bots = [f"ou_b07{number:029}" for number in range(1, 13)]
        await asyncio.gather(*(said_by(house, bot) for bot in bots for house in (one, other)))
        await one.until(lambda: len(one.feishu.messages) == 3)
        await asyncio.gather(one.idle(), other.idle())
        assert len(one.feishu.messages) == 3
        await one.say("and I?", chat=GROUP, chat_type="group", mention_bot=True)
        await one.until(lambda: len(one.feishu.messages) == 4)
        await asyncio.gather(*(said_by(house, bot, "once more") for bot in bots for house in (one, other)))
        await asyncio.gather(one.idle(), other.idle())
        assert len(one.feishu.messages) == 7


async def said_by(house: Running, bot: str, text: str = "hello", *, app: str = "cli_stranger", **more: Any) -> int:
    """A bot mentions ours; the status of our answer to Feishu."""
    more = {"chat": GROUP, "chat_type": "group", "mention_bot": True, "app": app, **more}
    message = f"om_{bot}{text}".translate(str.maketrans(" /", "__"))
    return (await house.say(text, sender=bot, message_id=message, **more)).status_code


ROWS: list[tuple[str, str, dict[str, Any], bool]] = [
    ("a bot of this gateway", "", {"app": PEER_APP}, True),
    ("a stranger", "", {}, False),
    ("a listed stranger", f"botsFrom: [{STRANGER}]", {}, True),
    ("every bot", "botsFrom: ['*']", {}, True),
    ("listed for the chat", f"chats: {{ {GROUP}: {{ botsFrom: [{STRANGER}] }} }}", {}, True),
    ("not for this chat", f"botsFrom: [{STRANGER}]\n    chats: {{ {GROUP}: {{ botsFrom: [] }} }}", {}, False),
    ("without a mention", "requireMention: false", {"app": PEER_APP, "mention_bot": False}, False),
    ("senders are listed", f"groupSenders: [{ALICE}]", {"app": PEER_APP}, False),
    ("all senders are", "groupSenders: ['*']", {"app": PEER_APP}, True),
    ("listed beside senders", f"groupSenders: [{ALICE}]\n    botsFrom: [{STRANGER}]", {}, True),
    ("a closed group", f"groupPolicy: disabled\n    botsFrom: [{STRANGER}]", {}, False),
    ("a direct chat", f"botsFrom: [{STRANGER}]", {"app": PEER_APP, "chat": "oc_p2p", "chat_type": "p2p"}, False),
]


@pytest.mark.parametrize(("name", "keys", "message", "answered"), ROWS, ids=[row[0] for row in ROWS])
async def test_bot_access_in_groups(
    tmp_path: Path, name: str, keys: str, message: dict[str, Any], answered: bool
) -> None:
    feishu = FEISHU.replace("    groupPolicy: open\n", "") if "groupPolicy" in keys else FEISHU
    async with running(tmp_path, feishu=f"{feishu}    {keys}\n{PEER_ACCOUNT}", script=[says("yes")]) as house:
        assert await said_by(house, PEER if "app" in message else STRANGER, **message) == 200
        await house.idle()
        assert len(house.feishu.messages) == answered
        if answered:
            assert '"is_bot":true' in users(house.anthropic.requests[0].body)[-1].replace(" ", "")


async def test_bot_lookup_finds_the_mention_and_fails_closed(tmp_path: Path) -> None:
    """The mention in the event may have the id that the other app knows; what cannot be read is not answered."""
    async with running(tmp_path, feishu=FEISHU + PEER_ACCOUNT, script=[says("yes")] * 3) as house:
        event = house.feishu.text_event(
            "hello", sender=PEER, chat=GROUP, chat_type="group", mention_bot=True, message_id="om_1", app=PEER_APP
        )
        (mention,) = event["event"]["message"]["mentions"]
        mention["id"]["open_id"] = "ou_as_the_other_app_knows_it"
        house.feishu.fail_next("/open-apis/im/v1/messages/om_1", status=500)
        assert (await house.push(event)).status_code == 503
        assert (await house.push(event)).status_code == 200
        assert await house.replies(1) == ["yes"]
        del house.feishu.known["om_1"]
        event["event"]["message"]["message_id"] = "om_gone"
        assert (await house.push(event)).status_code == 200
        await house.idle()
        assert len(house.feishu.messages) == 1


async def test_bots_run_no_commands_and_own_nothing(tmp_path: Path) -> None:
    listed = message_in("feishu", "default", Chat(id=GROUP, kind="group"), STRANGER)
    for is_bot in (False, True):
        sent = replace(listed, sender=replace(listed.sender, is_bot=is_bot))
        assert is_owner([f"feishu:{STRANGER}"], sent) != is_bot
    more = f"owners: [feishu:{STRANGER}, feishu:{ALICE}]"
    feishu = f"{FEISHU}    botsFrom: ['*']\n"
    async with running(tmp_path, feishu=feishu, more=more, script=lambda _: says("a text")) as house:
        for text in ("/status", "/approve abcd", "/good", "/unlisten", "/statu", "/new"):
            assert await said_by(house, STRANGER, text) == 200
        await house.idle()
        assert (house.feishu.messages, house.anthropic.requests) == ([], [])
        await house.say("/status", sender=ALICE, chat=GROUP, chat_type="group", mention_bot=True)
        await house.replies(1)


THREAD, OTHER_THREAD = "omt_1", "omt_2"


async def in_topic(house: Running, text: str, *, thread: str = THREAD, to_bot: bool = False, sender: str = BOB) -> None:
    more: dict[str, Any] = {"chat": GROUP, "chat_type": "group", "thread_id": thread, "mention_bot": to_bot}
    assert (await house.say(text, sender=sender, **more)).status_code == 200
    await house.idle()


@pytest.mark.parametrize("scope", ["chat", "sender"])
async def test_topic_needs_no_mention_once_answered(tmp_path: Path, database_url: str, scope: str) -> None:
    """Only with the key, only in that topic, after a restart too, and at no cost for who has no key."""
    agents, more = f"{AGENTS}      session: {{ scope: {scope} }}\n", f'database: {{ url: "{database_url}" }}'
    texts: dict[str, Any] = {"feishu": f"{FEISHU}    topicMention: false\n", "agents": agents, "more": more}
    async with running(tmp_path, **texts, script=lambda _: says("one")) as house:
        await in_topic(house, "nobody asked you")
        assert house.feishu.messages == []
        await in_topic(house, "hello", to_bot=True, sender=ALICE)
        await in_topic(house, "and more")
        assert len(await house.replies(2)) == 2
        await in_topic(house, "elsewhere", thread=OTHER_THREAD)
        await house.say("in the group", chat=GROUP, chat_type="group")
        await house.idle()
        assert len(house.feishu.messages) == 2
    async with running(tmp_path, **texts, script=lambda _: says("two")) as house:
        await in_topic(house, "after a restart")
        assert await house.replies(1) == ["two"]
    for keys in ("", f"topicMention: false\n    chats: {{ {GROUP}: {{ topicMention: true }} }}"):
        with case(keys):
            async with running(tmp_path, **texts | {"feishu": f"{FEISHU}    {keys}\n"}, script=()) as house:
                asked = count_reads(house)
                await in_topic(house, "without the key")
                assert (house.feishu.messages, asked) == ([], [])


def count_reads(house: Running) -> list[int]:
    """Count what is asked of the stored groups from now on."""
    chatter, asked = house.gateway.runtime.store.chatter, list[int]()
    read = chatter.read

    def counted(operation: Any) -> Any:
        asked.append(1)
        return read(operation)

    chatter.read = counted
    return asked


async def test_topic_answered_with_silence_still_needs_a_mention(tmp_path: Path) -> None:
    script = [says("__SILENT__"), says("now")]
    async with running(tmp_path, feishu=f"{FEISHU}    topicMention: false\n", script=script) as house:
        await in_topic(house, "say nothing", to_bot=True)
        await in_topic(house, "heard?")
        assert len(house.anthropic.requests) == 1
        await in_topic(house, "speak", to_bot=True)
        assert await house.replies(1) == ["now"]


async def test_topic_of_another_replica_needs_no_mention(tmp_path: Path, postgres_url: str) -> None:
    feishu = f"{FEISHU}    topicMention: false\n"
    async with two(tmp_path, postgres_url, lambda _: says("here"), feishu=feishu) as (one, other):
        await in_topic(one, "hello", to_bot=True)
        await one.replies(1)
        await in_topic(other, "and more")
        await one.replies(2)
