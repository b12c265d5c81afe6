"""Which agent answers: the most specific binding. Which conversation it is: a key that no other conversation has."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.config import AgentConfig
from channels.message import Chat, ChatKind, MessageContext, Sender
from gateway.config.root import AgentsConfig, BindingConfig, MatchConfig
from gateway.routing import route, session_key, specificity

AGENTS = AgentsConfig(list=(AgentConfig(id="first"), AgentConfig(id="other")))
KEYS = ("channel", "account", "chatType", "chat", "thread", "sender")


def message(
    *,
    channel: str = "feishu",
    account: str = "default",
    kind: ChatKind = "group",
    chat: str = "oc_1",
    thread: str | None = "omt_1",
    sender: str = "ou_1",
) -> MessageContext:
    return MessageContext(
        channel=channel,
        account=account,
        chat=Chat(id=chat, kind=kind, thread=thread),
        message_id="om_1",
        sender=Sender(id=sender),
        text="hello",
        sent_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


THIS = {
    "channel": "feishu",
    "account": "default",
    "chatType": "group",
    "chat": "oc_1",
    "thread": "omt_1",
    "sender": "ou_1",
}


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


_matching = st.sets(st.sampled_from(KEYS))
_any_match = st.dictionaries(
    st.sampled_from(["channel", "account", "chat", "thread", "sender"]), st.sampled_from(["x", "y"])
)


@given(
    _matching,
    st.sampled_from(KEYS),
    st.lists(_matching, max_size=4),
    st.lists(_any_match, max_size=3),
    st.integers(0, 4),
)
@settings(max_examples=150, deadline=None)
def test_a_further_key_never_makes_a_binding_that_holds_lose(
    keys: set[str], further: str, others: list[set[str]], foreign: list[dict[str, str]], place: int
) -> None:
    rest = [binding("first", **{key: THIS[key] for key in other}) for other in others]
    rest += [binding("first", **match) for match in foreign]
    before = [*rest[:place], binding("other", **{key: THIS[key] for key in keys}), *rest[place:]]
    after = [*rest[:place], binding("other", **{key: THIS[key] for key in {*keys, further}}), *rest[place:]]
    if route(before, AGENTS, message()) == "other":
        assert route(after, AGENTS, message()) == "other"


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


def test_neither_the_sender_nor_the_message_is_part_of_the_key() -> None:
    assert session_key("a", message(sender="ou_1")) == session_key("a", message(sender="ou_2"))


_id = st.text(":%3A2a5threadé", max_size=6)
_parts = st.tuples(_id, _id, _id, _id, st.none() | _id)


@given(_parts, _parts)
@settings(max_examples=200, deadline=None)
def test_different_conversations_never_share_a_key(
    one: tuple[str, str, str, str, str | None], other: tuple[str, str, str, str, str | None]
) -> None:
    keys = [session_key(a, message(channel=c, account=n, chat=i, thread=t)) for a, c, n, i, t in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)


@given(st.lists(_id, min_size=4, max_size=4))
@settings(max_examples=100, deadline=None)
def test_moving_a_border_between_two_parts_makes_another_key(ids: list[str]) -> None:
    agent, channel, account, chat = ids
    here = session_key(agent, message(channel=channel, account=account, chat=f"{chat}:thread:x", thread=None))
    there = session_key(agent, message(channel=channel, account=account, chat=chat, thread="x"))
    moved = session_key(
        agent, message(channel=f"{channel}:{account}", account="", chat=f"{chat}:thread:x", thread=None)
    )
    assert len({here, there, moved}) == 3
