"""Which layers hold for a message: of the person who wrote it, where he wrote it."""

from pathlib import Path
from typing import Any

import pytest

from channels.access import AccessConfig
from channels.message import Chat, ChatKind, Sender
from channels.tools import ToolLists
from gateway.config.channels import CHANNEL_TYPES, Account
from gateway.state.layers import ToolLayers
from tests.channels.contexts import context
from tests.gateway.config.writing import loaded

AGENTS = "agents: { list: [ { id: a, model: demo/guide } ] }"
RUNTIME = ToolLists(deny=("group:runtime",))


@pytest.mark.parametrize(
    ("more", "policy", "sender", "kind", "gone"),
    [
        ("", "pairing", "ou_stranger", "direct", True),
        ("", "pairing", "ou_listed", "direct", False),
        ("", "pairing", "ou_stranger", "group", False),
        ("", "open", "ou_stranger", "direct", False),
        ("tools: { ownerOnly: [] }", "pairing", "ou_stranger", "direct", False),
        ("owners: ['feishu:ou_owner']", "pairing", "ou_owner", "direct", False),
        ("owners: ['feishu:ou_owner']", "pairing", "ou_listed", "direct", True),
        ("owners: ['feishu:ou_owner']", "open", "ou_owner", "group", False),
        ("owners: ['feishu:ou_owner']", "open", "ou_stranger", "group", True),
        ("owners: ['telegram:ou_owner']", "open", "ou_owner", "direct", True),
    ],
)
def test_commands_are_the_owners(
    tmp_path: Path, more: str, policy: Any, sender: str, kind: ChatKind, gone: bool
) -> None:
    config = loaded(tmp_path, f"{AGENTS}\n{more}\n").config
    layers = ToolLayers(config, config.owners)
    access = AccessConfig.model_construct(dm_policy=policy, allow_from=("ou_listed",))
    account = Account(kind=CHANNEL_TYPES["feishu"], name="default", config=access, key=("channels", "feishu"))
    layers._accounts = {("feishu", "default"): account}
    found = layers.of(context("feishu", Chat(id="oc_1", kind=kind), sender=Sender(id=sender)))
    assert found == ((RUNTIME,) if gone else ())
