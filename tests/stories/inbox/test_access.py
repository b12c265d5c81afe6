"""Who may talk: every policy, for everybody there can be, wherever and with whatever kind of event."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from channels.access import AccessConfig, refusal, who_may_talk
from channels.channel import Arrived
from channels.feishu import content as events
from channels.message import Chat, Press, Sender
from channels.telegram import updates
from gateway.config.problems import ConfigErrors
from gateway.operate import contacts
from tests.channels.contexts import context
from tests.emulators.models.script import says
from tests.running import ALICE, ALICE_CHAT, BOB, FEISHU, GROUP, Running, running
from tests.stories.channels.test_telegram import PUBLIC, bot

OWNER, LISTED, PAIRED, STRANGER = (f"ou_{name:0>32}" for name in ("owner", "listed", "paired", "stranger"))
EVERYBODY = (OWNER, LISTED, PAIRED, STRANGER)
OTHER_GROUP = "oc_other0000000000000000000000000"
MAY_WRITE = {
    "pairing": {OWNER, LISTED, PAIRED},
    "allowlist": {OWNER, LISTED},
    "open": set(EVERYBODY),
    "disabled": set[str](),
}
IN_GROUPS = {
    "": set(EVERYBODY),
    "groupSenders: []": {OWNER},
    f"groupSenders: [{LISTED}]": {OWNER, LISTED},
    f"groupSenders: ['*']\n    chats: {{ {GROUP}: {{ senders: [{LISTED}] }} }}": {OWNER, LISTED},
    f"groupSenders: []\n    chats: {{ {GROUP}: {{ senders: ['*'] }} }}": set(EVERYBODY),
}
KINDS: dict[str, dict[str, Any]] = {
    "words": {"text": "hello"},
    "command": {"text": "/whoami"},
    "press": {"text": "", "press": Press(token="ap_1", message_id="om_0")},
}


def access(policy: str, within: str = "") -> str:
    keys = f"dmPolicy: {policy}\n    allowFrom: [{LISTED}]\n    groupAllowFrom: [{GROUP}]\n    {within}"
    return FEISHU.replace("dmPolicy: open\n    groupPolicy: open", keys)


async def outcomes(house: Running, chat: Chat) -> dict[str, set[str]]:
    """Whose events are accepted, by their kind. Nothing that is accepted is answered."""
    await house.gateway.lanes.drain(0)
    channel = house.gateway.runtime.setup.channels["feishu", "default"]
    found: dict[str, set[str]] = {}
    for kind, facts in KINDS.items():
        found[kind] = set()
        for person in EVERYBODY:
            place = replace(chat, id=f"oc_{person}") if chat.kind == "direct" else chat
            name = f"om_{kind}_{person}_{chat.id}"
            message = context("feishu", place, sender=Sender(id=person), message_id=name, mentioned=True, **facts)
            outcome = await house.gateway._intake.receive(channel, Arrived(context=message, dedupe=(name,)))
            found[kind] |= {person} if outcome == "accepted" else set()
    return found


@pytest.mark.parametrize("policy", MAY_WRITE)
async def test_dm_policy_decides_direct_chats_and_not_groups(tmp_path: Path, policy: str) -> None:
    owned = f'owners: ["feishu:{OWNER}"]'
    async with running(tmp_path, script=lambda _: says("yes"), feishu=access(policy), more=owned) as house:
        contacts.approve(house.gateway.config, f"feishu:{PAIRED}")
        assert await outcomes(house, Chat(id="", kind="direct")) == dict.fromkeys(KINDS, MAY_WRITE[policy])
        assert await outcomes(house, Chat(id=GROUP, kind="group")) == {kind: set(EVERYBODY) for kind in KINDS}
        assert await outcomes(house, Chat(id=OTHER_GROUP, kind="group")) == {kind: set() for kind in KINDS}
        assert (policy == "pairing") == any(it["state"] == "pending" for it in contacts.listed(house.gateway.config))


@pytest.mark.parametrize("within", IN_GROUPS, ids=["unset", "nobody", "listed", "listed-there", "all-there"])
async def test_group_allowlist_of_account_and_chat_decides_senders(tmp_path: Path, within: str) -> None:
    owned, feishu = f'owners: ["feishu:{OWNER}"]', access("pairing", within)
    async with running(tmp_path, script=lambda _: says("yes"), feishu=feishu, more=owned) as house:
        contacts.approve(house.gateway.config, f"feishu:{PAIRED}")
        assert await outcomes(house, Chat(id=GROUP, kind="group")) == dict.fromkeys(KINDS, IN_GROUPS[within])
        assert await outcomes(house, Chat(id=OTHER_GROUP, kind="group")) == {kind: set() for kind in KINDS}


@pytest.mark.parametrize("policy", ["allowlist", "pairing"])
async def test_access_refuses_every_other_kind_of_event(tmp_path: Path, policy: str) -> None:
    async with bot(tmp_path, "webhook", more=PUBLIC, dm_policy=policy) as it:
        house, telegram = it.house, it.telegram
        message = telegram.text_update("hello", chat=telegram.private())["message"]
        body = {**message, "data": "ap:1", "id": "1", "message": message, "new_chat_member": {"status": "member"}}
        for kind in sorted({*updates.KNOWN, "unheard_of"} - {"message"}):
            await it.happens(telegram.update(kind, body))
        for kind in sorted({*events.KNOWN, events.CARD_ACTION, "unheard.of_v1"}):
            event = house.feishu.text_event("hello", sender=BOB, chat=ALICE_CHAT)
            event["header"]["event_type"] = kind
            await house.push(event)
        await house.idle()
        assert (telegram.messages, house.feishu.messages, house.anthropic.requests) == ([], [], [])


async def test_access_treats_an_unknown_chat_kind_as_a_group(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=access("open"), script=[says("yes")]) as house:
        for kind in ("", "P2P", "private", "topic"):
            await house.say("hello", sender=ALICE, chat=f"oc_unknown{kind}", chat_type=kind, mention_bot=True)
        await house.idle()
        assert house.feishu.messages == []


MENTIONED = [
    (["helper"], "Helper, look", True),
    (["helper"], "helpers", False),
    (["小助手"], "请小助手看看", True),
    (["^hey .*bot$"], "Hey you BOT", True),
    (["^hey .*bot$"], "hey", False),
    (["(a+)+$"], "a" * 50_000 + "!", False),
    (["(x|x)*y"], "x" * 50_000, False),
]


@pytest.mark.parametrize(("patterns", "text", "passes"), MENTIONED, ids=range(len(MENTIONED)))
def test_mention_pattern_counts_as_a_mention_in_linear_time(patterns: list[str], text: str, passes: bool) -> None:
    listening = AccessConfig.model_validate({"groupPolicy": "open", "mentionPatterns": tuple(patterns)})
    said = context("feishu", Chat(id=GROUP, kind="group"), text=text)
    assert (refusal(listening, said) is None) == passes


WRONG = [
    ("mentionPatterns: ['(a)\\1']", "RE2"),
    ("mentionPatterns: ['(']", "RE2"),
    ("mentionPatterns: ['']", "would match every message"),
    ("mentionPatterns: ['a*']", "would match every message"),
    ("groupSenders: [Alice]", "must be a person's open id"),
    (f"chats: {{ {GROUP}: {{ senders: [{GROUP}] }} }}", "must be a person's open id"),
    (f"chats: {{ {GROUP}: {{ agent: nobody }} }}", 'unknown agent "nobody"'),
    ("chats: { Team: {} }", "must be a group's chat id"),
    ("chats: { 'a.b[0]': { senders: [x] } }", "must be a group's chat id"),
    ("groupPolicy: pairing", "groupPolicy"),
]


@pytest.mark.parametrize(("within", "problem"), WRONG, ids=range(len(WRONG)))
async def test_access_config_mistakes_are_named(tmp_path: Path, within: str, problem: str) -> None:
    with pytest.raises(ConfigErrors) as raised:
        async with running(tmp_path, feishu=access("pairing", within)):
            pass
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("more", "problem"),
    [("commands: { pair: everyone }", "never for everyone"), ('owners: ["feishu:*"]', "named one by one")],
)
async def test_access_config_never_opens_owner_tools_to_everyone(tmp_path: Path, more: str, problem: str) -> None:
    with pytest.raises(ConfigErrors, match=problem):
        async with running(tmp_path, more=more):
            pass


async def test_group_config_has_its_own_agent_and_mention_rule(tmp_path: Path) -> None:
    agents = """
agents:
  list:
    - { id: helper, model: anthropic/claude-sonnet-4-6, greeting: I am the helper. }
    - { id: second, model: anthropic/claude-sonnet-4-6, greeting: I am the second. }
"""
    chats = f"chats: {{ {GROUP}: {{ requireMention: false, agent: second }} }}"
    async with running(tmp_path, feishu=access("open", chats), agents=agents) as house:
        await house.say("/start", chat=GROUP, chat_type="group")
        assert await house.replies(1) == ["I am the second."]
        await house.say("/start")
        assert (await house.replies(2))[1] == "I am the helper."


def test_access_policy_in_words() -> None:
    def words(**keys: Any) -> str:
        return who_may_talk(AccessConfig.model_validate(keys)).partition(" — ")[0]

    switched = "switched on with /listen"  # they are in the database, and the config is read here
    assert words() == f"whom you approve in direct chats; in no group but those {switched}"
    assert words(allowFrom=("1", "2")).startswith(
        "whom you approve and 2 listed in direct chats; in no group but those"
    )
    assert words(dmPolicy="allowlist", groupAllowFrom=("-1",)) == (
        f"only owners in direct chats; in 1 group and those {switched}"
    )
    assert words(groupPolicy="disabled", groupAllowFrom=("*",)) == "whom you approve in direct chats; in no group"
    assert words(allowFrom=("*",), groupAllowFrom=("*",)) == "everybody in direct chats; in every group"
    assert words(dmPolicy="disabled", allowFrom=("*",), groupPolicy="open") == "nobody in direct chats; in every group"
