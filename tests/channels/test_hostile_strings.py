"""Every string of every recorded update, one at a time, made hostile: what a channel makes of it can be stored."""

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, TypeAlias

import pytest
from hypothesis import settings

import channels.feishu.content as feishu
import channels.telegram.updates as telegram
from channels.channel import Arrived, Edited, Membership, Moved, NotReady, Recalled, Receipt, Rejected
from channels.telegram.content import Me
from gateway.store.inbound import Inbound, inbound_json
from tests.channels.telegram_samples import load_samples
from tests.channels.test_samples import SAMPLES as FEISHU_SAMPLES

Path: TypeAlias = tuple[str | int, ...]
NOW = datetime(2026, 9, 21, 12, 0, tzinfo=UTC)
HOSTILE = ["a\ud800\0b", "\0", "\ud83d", "\udc00x", "\u202e" * 5, "x" * 300_000]


def leaves(node: Any, path: Path = ()) -> Iterator[Path]:
    """Where strings are; also inside a string that is JSON itself, as Feishu's content is."""
    if isinstance(node, str):
        yield path
        if node[:1] in ("{", "["):
            yield from ((*path, "JSON", *inner) for inner in leaves(json.loads(node)))
    for key, inner in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from leaves(inner, (*path, key))


def put(node: Any, path: Path, value: str) -> Any:
    if not path:
        return value
    first, *rest = path
    if first == "JSON":
        return json.dumps(put(json.loads(node), tuple(rest), value))
    changed = copy.copy(node)
    changed[first] = put(node[first], tuple(rest), value)
    return changed


def stored(receipt: Receipt) -> None:
    """As the gateway would: the inbox's body, the keys, and the ids of chats and people."""
    keys = [receipt.dedupe] if isinstance(receipt, Membership | Recalled) else []
    if isinstance(receipt, Moved):
        keys += [receipt.before, receipt.after]
    if isinstance(receipt, Edited):
        receipt = receipt.arrived
    if isinstance(receipt, Recalled):
        keys += [receipt.chat, receipt.message_id]
    if isinstance(receipt, Arrived | Membership):
        body = inbound_json.dump_json(Inbound(agent="a", context=receipt.context)).decode()
        assert "\\u0000" not in body
        keys += [body, str(asdict(receipt.context)["chat"]["id"]), receipt.context.sender.id]
        keys += receipt.dedupe if isinstance(receipt, Arrived) else []
    for key in keys:
        key.encode()
        assert "\0" not in key


def values(place: int) -> list[str]:
    """The worst, and in turn one of the others: a field stands in many samples. `make test-all` takes all of them."""
    everything = settings().max_examples > 100
    return HOSTILE if everything else [HOSTILE[0], HOSTILE[1 + place % (len(HOSTILE) - 1)]]


def test_telegram() -> None:
    me, tried = Me(id=42, username="helper_bot"), set()
    for number, sample in enumerate(load_samples()):
        for place, path in enumerate(leaves(sample.update)):
            for value in values(number + place):
                tried.add(path[-1])
                stored(telegram.receipt(put(sample.update, path, value), account="d", me=me, now=NOW))
    assert {"language_code", "id", "data", "text", "first_name", "title", "file_id"} <= tried


@pytest.mark.parametrize("sample", FEISHU_SAMPLES, ids=lambda sample: sample.name)
def test_feishu(sample: Any) -> None:
    for place, path in enumerate(leaves(sample.event), start=FEISHU_SAMPLES.index(sample)):
        for value in values(place):
            with suppress(NotReady, Rejected):
                stored(feishu.receipt(put(sample.event, path, value), account="d", bot="ou_b07", now=NOW, zone=UTC))
