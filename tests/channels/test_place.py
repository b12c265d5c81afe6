"""Places: what is printed is read again as the same, and what cannot be read says what to write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.message import DEFAULT, Place, place_of

NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789_-", min_size=1, max_size=12)
IDS = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters=":#"), min_size=1, max_size=30
)
ACCOUNTS = {"feishu": [DEFAULT], "telegram": ["family", "work"], "web": [DEFAULT, "team"], "line": ["only"]}


@given(
    channels=st.dictionaries(NAMES, st.sets(NAMES | st.just(DEFAULT), min_size=1), min_size=1),
    chat=IDS,
    thread=st.none() | IDS,
    data=st.data(),
)
def test_what_is_printed_is_read_as_the_same_place(
    channels: dict[str, set[str]], chat: str, thread: str | None, data: st.DataObject
) -> None:
    channel = data.draw(st.sampled_from(sorted(channels)))
    account = data.draw(st.sampled_from(sorted(channels[channel])))
    place = Place(channel=channel, account=account, chat=chat, thread=thread)

    assert place_of(str(place), channels) == place


@given(st.text(max_size=60) | st.from_regex(r"[a-z]{0,8}:?[a-z]{0,6}:?[a-z0-9]{0,4}#?[a-z0-9]{0,4}", fullmatch=True))
def test_whatever_is_written_is_a_place_of_an_account_or_a_sentence(text: str) -> None:
    place = _read(text)

    if isinstance(place, Place):
        assert place.account in ACCOUNTS[place.channel]
        assert place_of(str(place), ACCOUNTS) == place
    else:
        assert place


def _read(text: str) -> Place | str:
    try:
        return place_of(text, ACCOUNTS)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize(
    ("text", "account", "chat", "thread"),
    [
        ("feishu:oc_team", DEFAULT, "oc_team", None),
        ("feishu:default:oc_team", DEFAULT, "oc_team", None),
        ("telegram:family:-1001#7", "family", "-1001", "7"),
        ("line:U1", "only", "U1", None),
        ("web:team:c1", "team", "c1", None),
    ],
)
def test_the_account_that_is_meant(text: str, account: str, chat: str, thread: str | None) -> None:
    place = place_of(text, ACCOUNTS)

    assert (place.account, place.chat, place.thread) == (account, chat, thread)


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        (
            "slack:C1",
            "no channel 'slack' is configured; there is: feishu, line:only, telegram:family, telegram:work, web",
        ),
        ("telegram:famly:1", "telegram has no account 'famly'; there is: telegram:family, telegram:work"),
        ("telegram:1#7", "name one: telegram:family:1#7 or telegram:work:1#7"),
        ("feishu", "such as feishu:oc_team"),
        ("feishu:", "such as feishu:oc_team"),
        ("feishu:a:b:c", "such as feishu:oc_team"),
        ("feishu:oc_1#", "such as feishu:oc_team"),
        ("feishu:oc 1", "such as feishu:oc_team"),
        ("feishu:oc_1\u202e", "such as feishu:oc_team"),
        (" feishu:oc_1", "such as feishu:oc_team"),
    ],
)
def test_a_place_that_is_none_says_what_to_write(text: str, fix: str) -> None:
    with pytest.raises(ValueError) as raised:
        place_of(text, ACCOUNTS)

    assert fix in str(raised.value)
