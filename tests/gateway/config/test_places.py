"""Places in a config: only a configured account has chats, and only what can be one of its platform's ids is one."""

import pytest

from gateway.config.channels import ChannelsConfig, place_in

CHANNELS = ChannelsConfig.model_validate(
    {
        "feishu": {"appId": "cli_a", "appSecret": "s"},
        "telegram": {"accounts": {"family": {"botToken": "1:AA"}}},
        "web": {"enabled": True},
    }
)


@pytest.mark.parametrize(
    "text", ["feishu:oc_team#omt_1", "feishu:ou_person", "telegram:family:123", "telegram:-1001234#7", "web:c1"]
)
def test_a_person_s_chat_and_a_group_s_are_places(text: str) -> None:
    assert place_in(CHANNELS, text).chat in text


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        (
            "feishu:team",
            "'team' is no chat of feishu: must be a person's open id, ou_…: ids only, never names, or must be a",
        ),
        ("feishu:*", "'*' is no chat of feishu"),
        ("telegram:@family", "'@family' is no chat of telegram: must be a person's id"),
        ("slack:C1", "no channel 'slack' is configured; there is: feishu, telegram:family, web"),
    ],
)
def test_what_cannot_be_a_chat_there_says_what_one_looks_like(text: str, fix: str) -> None:
    with pytest.raises(ValueError) as raised:
        place_in(CHANNELS, text)

    assert fix in str(raised.value)


def test_without_channels_there_is_no_place() -> None:
    with pytest.raises(ValueError, match="there is: none"):
        place_in(ChannelsConfig(), "feishu:oc_team")
