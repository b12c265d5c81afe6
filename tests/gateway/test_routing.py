"""Which agent answers: the most specific binding. Which conversation it is: a key that no other conversation has."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.config import AgentConfig, SessionScope
from channels.message import Chat, ChatKind, MessageContext, Sender
from gateway.config.root import AgentsConfig, BindingConfig, MatchConfig, route, specificity
from gateway.store.sessions import (
    SessionParts,
    agent_of,
    parent_of,
    session_key,
    session_parts,
    task_of,
    task_session,
)
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
def test_routing_most_specific_binding_wins(bindings: list[BindingConfig], agent: str) -> None:
    assert route(bindings, AGENTS, message()) == agent


def test_routing_chat_without_a_topic_matches_no_thread() -> None:
    assert route([binding("other", thread="omt_1")], AGENTS, message(thread=None)) == "first"
    assert route([binding("other", chatType="direct")], AGENTS, message(kind="direct")) == "other"


def test_routing_key_outweighs_all_weaker_ones() -> None:
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
def test_routing_session_key(context: MessageContext, key: str) -> None:
    assert session_key("coder", context, "chat") == key


def test_routing_scope_sender_is_per_person_and_topic() -> None:
    key = "agent:coder:feishu:default:oc_1"
    assert session_key("coder", message(thread=None), "sender") == f"{key}:sender:ou_1"
    assert session_key("coder", message(), "sender") == f"{key}:thread:omt_1:sender:ou_1"
    assert session_key("coder", message(kind="direct", thread=None), "sender") == key
    assert session_key("coder", message(kind="direct"), "sender") == f"{key}:thread:omt_1"


IDS = st.text(st.sampled_from(":%3A25senderthd会"), max_size=8)
PLACES = st.tuples(IDS, IDS, IDS, IDS, st.none() | IDS, IDS, st.sampled_from(["direct", "group"]))


@given(one=PLACES, other=PLACES, scope=st.sampled_from(["chat", "sender"]))
def test_routing_keys_are_unique_and_readable(
    one: tuple[Any, ...], other: tuple[Any, ...], scope: SessionScope
) -> None:
    keys, meant = [], []
    for agent, channel, account, chat, thread, sender, kind in (one, other):
        context = message(channel=channel, account=account, chat=chat, thread=thread, sender=sender, kind=kind)
        keys.append(session_key(agent, context, scope))
        own = sender if (scope, kind) == ("sender", "group") else None
        meant.append(SessionParts(agent=agent, channel=channel, account=account, chat=chat, thread=thread, sender=own))
    assert (keys[0] == keys[1]) == (meant[0] == meant[1])
    assert [session_parts(key) for key in keys] == meant
    tasks = [task_session("clerk", key, "4d5ff749") for key in keys]
    assert [parent_of(it) for it in tasks] == keys
    assert [parent_of(it) for it in keys] == keys
    assert [(task_of(it), agent_of(it)) for it in tasks] == [("4d5ff749", "clerk")] * 2
    assert [task_of(it) for it in keys] == [None, None]
    assert [session_parts(it).place for it in tasks] == [it.place for it in meant]


def test_keys_of_ids_that_look_like_keys_differ() -> None:
    ids = ("", ":", "a", "a:thread", "%3A", "a:sender:b")
    places = list(product(ids, ids, (*ids, None), ids))
    keys = {session_key("a", message(account=n, chat=i, thread=t, sender=s), "sender") for n, i, t, s in places}
    assert len(keys) == len(places)
