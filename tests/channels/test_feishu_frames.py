"""The official SDK's protobuf judges our frames, both ways."""

from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.feishu.connection import DATA, FRAME_BYTES_MAX, PARTS_MAX, Frame, Parts, decode, encode

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
frames = st.builds(
    Frame,
    seq=st.integers(0, 2**64 - 1),
    log=st.integers(0, 2**64 - 1),
    service=st.integers(-(2**31), 2**31 - 1),
    method=st.integers(-(2**31), 2**31 - 1),
    headers=st.lists(st.tuples(words, words), max_size=5).map(tuple),
    encoding=words,
    kind=words,
    payload=st.binary(max_size=300),
    log_id=words,
)


@pytest.fixture(scope="module")
def judge() -> Any:
    import_module("tests.feishu_sdk")
    return import_module("lark_oapi.ws.pb.pbbp2_pb2").Frame


@given(frame=frames)
def test_the_official_frames_read_ours_and_we_read_theirs(judge: Any, frame: Frame) -> None:
    theirs = judge()
    theirs.ParseFromString(encode(frame))
    assert (theirs.SeqID, theirs.LogID, theirs.service, theirs.method) == (
        frame.seq,
        frame.log,
        frame.service,
        frame.method,
    )
    assert [(it.key, it.value) for it in theirs.headers] == list(frame.headers)
    assert (theirs.payload_encoding, theirs.payload_type, theirs.payload) == (frame.encoding, frame.kind, frame.payload)
    assert theirs.LogIDNew == frame.log_id
    assert decode(theirs.SerializeToString()) == frame


@given(data=st.binary(max_size=200))
def test_what_is_no_frame_is_a_value_error(data: bytes) -> None:
    try:
        frame = decode(data)
    except ValueError:
        return
    assert decode(encode(frame)) == frame


def test_unknown_fields_are_passed_over() -> None:
    frame = Frame(service=1, method=DATA, payload=b"{}")
    unknown = b"\x50\x01" + b"\x5a\x02hi" + b"\x61" + bytes(8) + b"\x6d" + bytes(4)
    assert decode(encode(frame) + unknown) == frame
    with pytest.raises(ValueError, match="cut off"):
        decode(encode(frame) + b"\x5a\x05hi")


def part(message: str, place: int, count: int, payload: bytes) -> Frame:
    headers = {"type": "event", "message_id": message, "sum": str(count), "seq": str(place)}
    return Frame(service=1, method=DATA, headers=tuple(headers.items()), payload=payload)


@given(pieces=st.lists(st.binary(min_size=1, max_size=5), min_size=1, max_size=6), data=st.data())
def test_parts_are_joined_in_their_order_whichever_comes_first(pieces: list[bytes], data: st.DataObject) -> None:
    parts = Parts()
    order = data.draw(st.permutations(range(len(pieces))))
    *first, last = [parts.join(part("m", place, len(pieces), pieces[place])) for place in order]
    assert first == [None] * len(first)
    assert last == b"".join(pieces)


def test_parts_that_cannot_be_are_none() -> None:
    parts = Parts()
    for place, count in ((2, 2), (-1, 2), (0, PARTS_MAX + 1), (0, 0)):
        assert parts.join(part("m", place, count, b"x")) is None
    assert parts.join(part("n", 0, 2, b"x" * (FRAME_BYTES_MAX // 2 + 1))) is None
    assert parts.join(part("n", 1, 2, b"x" * (FRAME_BYTES_MAX // 2 + 1))) is None
