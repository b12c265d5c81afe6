"""Which agent answers: the most specific binding. Which conversation it is: a key that no other conversation has."""

from dataclasses import replace
from itertools import product

import pytest

from agents.config import AgentConfig
from channels.message import Chat, ChatKind, MessageContext, Sender
from gateway.config.root import AgentsConfig, BindingConfig, MatchConfig
from gateway.routing import route, session_key, specificity
from tests.tools.bench import CALL

AGENTS = AgentsConfig(list=(AgentConfig(id="first"), AgentConfig(id="other")))
KEYS = ("channel", "account", "chatType", "chat", "thread", "sender")
THIS = dict(zip(KEYS, ("feishu", "default", "group", "oc_1", "omt_1", "ou_1"), strict=True))


def message(
    *,
    channel: str = "feishu",
    account: str = "default",
    kind: ChatKind = "group",
    chat: str = "oc_1",
    thread: str | None = "omt_1",
    sender: str = "ou_1",
) -> MessageContext:
    place = Chat(id=chat, kind=kind, thread=thread)
    return replace(CALL.message, channel=channel, account=account, chat=place, sender=Sender(id=sender))


def binding(agent: str, **match: str) -> BindingConfig:
    return BindingConfig(agent=agent, match=MatchConfig.model_validate(match))


@pytest.mark.parametrize(
    ("bindings", "agent"),
    [
        ([], "first"),
        ([binding("other")], "other"),
        ([binding("other", channel="telegram")], "first"),
        ([binding("other", channel="feishu", account="default", chatType="group", chat="oc_2")], "first"),
        ([binding("other", channel="feishu")], "other"),
        ([binding("other", thread="omt_2")], "first"),
        ([binding("first", channel="feishu"), binding("other", account="default")], "other"),
        ([binding("other", account="default"), binding("first", channel="feishu")], "other"),
        ([binding("other", chatType="group"), binding("first", channel="feishu", account="default")], "other"),
        ([binding("first", chatType="group"), binding("other", chat="oc_1")], "other"),
        ([binding("first", chat="oc_1"), binding("other", thread="omt_1")], "other"),
        ([binding("first", thread="omt_1", chat="oc_1", channel="feishu"), binding("other", sender="ou_1")], "other"),
        ([binding("other", chat="oc_1"), binding("first", chat="oc_1")], "other"),
        ([binding("first", chat="oc_2", sender="ou_1"), binding("other", channel="feishu")], "other"),
    ],
)
def test_the_most_specific_binding_wins(bindings: list[BindingConfig], agent: str) -> None:
    assert route(bindings, AGENTS, message()) == agent


def test_a_chat_without_topic_matches_no_thread() -> None:
    assert route([binding("other", thread="omt_1")], AGENTS, message(thread=None)) == "first"
    assert route([binding("other", chatType="direct")], AGENTS, message(kind="direct")) == "other"


def test_a_key_outweighs_all_weaker_ones_together() -> None:
    for number, key in enumerate(KEYS):
        weaker = {name: THIS[name] for name in KEYS[:number]}
        stronger = specificity(MatchConfig.model_validate({key: THIS[key]}))
        assert stronger > specificity(MatchConfig.model_validate(weaker))


@pytest.mark.parametrize(
    ("context", "key"),
    [
        (message(thread=None), "agent:coder:feishu:default:oc_1"),
        (message(), "agent:coder:feishu:default:oc_1:thread:omt_1"),
        (message(thread=""), "agent:coder:feishu:default:oc_1:thread:"),
        (message(chat="a:thread:b", thread=None), "agent:coder:feishu:default:a%3Athread%3Ab"),
        (message(chat="a%3Ab", thread=None), "agent:coder:feishu:default:a%253Ab"),
        (message(chat="会话", thread=None), "agent:coder:feishu:default:会话"),
    ],
)
def test_the_key_of_a_conversation(context: MessageContext, key: str) -> None:
    assert session_key("coder", context) == key


def test_different_conversations_never_share_a_key() -> None:
    ids = ("", ":", "a", "a:thread", "%3A")
    places = list(product(ids, ids, ids, ids, (*ids, None)))
    keys = {session_key(a, message(channel=c, account=n, chat=i, thread=t)) for a, c, n, i, t in places}
    assert len(keys) == len(places)
