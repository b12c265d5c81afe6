"""The events of a model's stream: whole in whatever pieces they come, in linear time, and never without an end."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.providers.http import EVENT_BYTES_MAX, _EventReader
from agents.providers.payload import BadStream

PIECE = 65_536


class Counted(bytes):
    """Bytes that count what is done to them: looked through, or copied behind others."""

    work = 0

    def split(self, *given: object) -> list[bytes]:
        Counted.work += len(self)
        return bytes(self).split(*given)  # type: ignore[arg-type]

    def __radd__(self, before: bytes) -> "Counted":
        Counted.work += len(before) + len(self)
        return Counted(bytes(before) + bytes(self))


def work_of(pieces: int) -> int:
    """For one event that comes in so many pieces."""
    reader = _EventReader()
    reader.feed(b"data: ")
    Counted.work = 0
    for _ in range(pieces):
        reader.feed(Counted(b"x" * PIECE))
    (event,) = reader.feed(b"\n\n")
    assert len(event) == pieces * PIECE
    return Counted.work


def test_an_event_in_many_pieces_costs_as_much_as_in_few() -> None:
    assert work_of(64) == 2 * work_of(32) == 64 * PIECE


@pytest.mark.parametrize("line", [b"x", b"data: x\n", b": x", b"data: x\r\n"], ids=["line", "data", "comment", "crlf"])
def test_an_event_without_an_end_is_bounded(line: bytes) -> None:
    """One line that goes on, and lines of an event that no empty line ends."""
    reader, chunk = _EventReader(), line * (PIECE // len(line))

    def feed() -> None:
        for _ in range(2 * EVENT_BYTES_MAX // PIECE):
            reader.feed(chunk)

    with pytest.raises(BadStream, match="longer than"):
        feed()


def test_what_an_event_held_does_not_count_for_the_next_one() -> None:
    reader, event = _EventReader(), b"data: " + b"x" * (EVENT_BYTES_MAX // 2) + b"\n\n"
    assert sum(len(reader.feed(event)) for _ in range(4)) == 4


@given(
    events=st.lists(st.lists(st.text("abc {}\r\u2028é", max_size=8), min_size=1, max_size=3), max_size=4),
    cuts=st.lists(st.integers(0, 200), max_size=6),
    ending=st.sampled_from(["\n", "\r\n"]),
)
def test_events_are_the_same_in_whatever_pieces_they_come(
    events: list[list[str]], cuts: list[int], ending: str
) -> None:
    events = [[line.rstrip("\r") for line in event] for event in events]
    raw = "".join("".join(f"data: {line}{ending}" for line in event) + ending for event in events).encode()
    edges = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    reader = _EventReader()
    pieces = [raw[start:end] for start, end in pairwise(edges)]
    found = [event for piece in pieces for event in reader.feed(piece)]
    assert found == ["\n".join(event) for event in events]
