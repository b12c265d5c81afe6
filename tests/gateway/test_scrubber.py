"""Of a configured secret no eight characters in a row leave the gateway, and nothing else is touched."""

import base64
import json
import random
import string
import time
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.message import File
from gateway.observe.secrets import HELD_MAX, RUN_CHARS, Scrubber

KEY = "sk-ant-api03-Qw7_zR2mXv9LkP4t"
ODD = 'canary/"密钥"+se cret'
SCRUBBER = Scrubber([KEY, ODD, "canary-anthropic-key-91827", "7123456789:AAHk3_pQ9vXz-Lm2Nw8RtYu5BcDe1FgHi"])
SECRETS = (KEY, ODD)


def runs(text: str) -> set[str]:
    """Pieces of a secret that a text shows."""
    windows = {secret[at : at + RUN_CHARS] for secret in SECRETS for at in range(len(secret) - RUN_CHARS + 1)}
    return {window for window in windows if window in text}


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        KEY[:8],
        KEY[5:20],
        KEY[-8:],
        ODD,
        json.dumps(ODD)[1:-1],
        quote(ODD, safe=""),
        base64.b64encode(KEY.encode()).decode(),
        base64.b64encode(f"x={KEY}\n".encode()).decode()[4:-6],
        base64.urlsafe_b64encode(f"{{{ODD}".encode()).decode()[3:-3],
        KEY.encode().hex(),
        KEY.encode().hex().upper(),
        ODD.encode().hex(" "),
        "".join(f"%{it:02x}" for it in KEY.encode()),
        "".join(f"%{it:02X}" for it in ODD.encode()),
        *(base64.b32encode(b"x=+:-"[:shift] + KEY.encode()).decode().rstrip("=")[7:-1] for shift in range(5)),
    ],
)
@pytest.mark.parametrize("around", ["{}", "key={};", "é{}密", "x{0}{0}y"])
def test_every_form_of_a_secret_is_struck_out_wherever_it_stands(form: str, around: str) -> None:
    for before in range(5):
        shown = SCRUBBER.scrub("." * before + around.format(form))
        assert not any(form[at : at + RUN_CHARS] in shown for at in range(max(1, len(form) - RUN_CHARS + 1)))
        assert "***" in shown


def as_hexdump(data: bytes) -> str:
    return "\n".join(
        f"{at:08x}  {data[at : at + 8].hex(' ')}  {data[at + 8 : at + 16].hex(' ')}" for at in range(0, len(data), 16)
    )


def as_xxd(data: bytes) -> str:
    return "\n".join(f"{at:08x}: {data[at : at + 16].hex(' ', -2)}" for at in range(0, len(data), 16))


def as_od(data: bytes) -> str:
    pairs = [f"{low | high << 8:04x}" for low, high in zip(data[::2], data[1::2], strict=False)]
    return "\n".join(f"{at * 2:07o} {' '.join(pairs[at : at + 8])}" for at in range(0, len(pairs), 8))


@pytest.mark.parametrize("case", [str, str.upper])
@pytest.mark.parametrize("dump", [as_hexdump, as_xxd, as_od])
@pytest.mark.parametrize("before", range(16))
def test_scrubber_leaves_at_most_a_cut_of_a_secret(
    dump: Callable[[bytes], str], before: int, case: Callable[[str], str]
) -> None:
    text = dump(b"." * before + KEY.encode() + b"." * 40)
    assert SCRUBBER.scrub(dump(b"." * 100)) == dump(b"." * 100)
    lines = case(text).splitlines()
    shown = SCRUBBER.scrub("\n".join(lines)).splitlines()
    kept = ["".join(line.split()[1:]).lower() for line in shown]
    assert "***" in "".join(shown)
    pieces = {KEY.encode()[at : at + 4] for at in range(len(KEY) - 3)}
    for line in kept:
        for piece in pieces:
            swapped = b"".join(piece[at : at + 2][::-1] for at in range(0, 4, 2))
            assert piece.hex() not in line
            assert swapped.hex() not in line or dump is not as_od


def test_a_secret_of_words_strikes_these_words_in_answers() -> None:
    """As the page on security says: halves must not pass, and nobody can tell a half from a name."""
    words = Scrubber(["my-company-bot-secret"])
    assert words.scrub("Welcome to my-company!") == "Welcome to ***!"
    assert words.scrub("Welcome to the company, my friend.") == "Welcome to the company, my friend."


@pytest.mark.parametrize(
    "text",
    [
        "anthropic/claude-sonnet-4-6",
        "The key of Anthropic is an anthropic-compatible one.",
        "user 7123456789 wrote",
        "sk-ant-… is how it begins",
        "密钥",
        "",
    ],
)
def test_words_that_a_secret_happens_to_hold_stay(text: str) -> None:
    assert SCRUBBER.scrub(text) == text


@given(
    before=st.text(max_size=12),
    secret=st.sampled_from(SECRETS),
    after=st.text(max_size=12),
    cuts=st.lists(st.integers(0, 60), max_size=8),
)
def test_no_draft_shows_more_of_a_secret_than_the_whole_will(
    before: str, secret: str, after: str, cuts: list[int]
) -> None:
    text = before + secret + after
    for cut in (*cuts, len(text)):
        draft = SCRUBBER.draft(text[:cut])
        assert not runs(draft)
        assert text.startswith(draft.partition("***")[0])
    assert not runs(SCRUBBER.scrub(text))


def test_what_may_become_a_secret_waits_until_it_is_known() -> None:
    assert SCRUBBER.draft("It is sk-a") == "It is "
    assert SCRUBBER.draft("It is sk-a piece") == "It is sk-a piece"
    assert SCRUBBER.draft(f"It is {KEY[:-1]}") == "It is "
    assert SCRUBBER.draft(f"It is {KEY}, keep it") == "It is ***, keep it"


def test_what_was_a_secret_stays_one_and_short_ones_are_none() -> None:
    scrubber = Scrubber()
    assert scrubber.scrub(KEY) == KEY
    scrubber.learn([KEY])
    scrubber.learn(["short"])
    assert scrubber.scrub(f"{KEY} short") == "*** short"


def test_a_long_reply_costs_well_under_a_millisecond() -> None:
    text = "A plain sentence of a long reply, as people write it. " * 370
    scrubber = Scrubber([f"{number}-{KEY[::-1]}-{number * 7919}" for number in range(20)])

    def seconds() -> float:
        began = time.thread_time()
        scrubber.scrub(text)
        return time.thread_time() - began

    assert min(seconds() for _ in range(30)) < 0.001


@pytest.mark.parametrize("around", [b"a %b z", b"\xff\xfe %b \x80", b"PK\3\4\xe9%b"])
def test_a_file_is_scrubbed_with_its_name_whatever_bytes_stand_around(around: bytes) -> None:
    file = SCRUBBER.scrub_file(File(name=f"{KEY}.txt", type="text/plain", data=around % KEY.encode()))
    assert (file.name, file.data) == ("***.txt", around % b"***")
    clean = File(name="a.bin", type="x/y", data=bytes(range(256)))
    assert SCRUBBER.scrub_file(clean) == clean


def test_scrubber_holds_the_newest_tokens_and_every_secret() -> None:
    """People's tokens are replaced every two hours: they must not fill the memory, nor push out what the config names."""
    chance = random.Random(91827)
    tokens = ["u-" + "".join(chance.choices(string.ascii_letters + string.digits, k=43)) for _ in range(HELD_MAX + 1)]
    scrubber = Scrubber([KEY])
    for token in tokens:
        scrubber.hold(token)
        scrubber.hold(tokens[0])  # in use all the time
    for known in (tokens[0], tokens[-1], KEY):
        assert known not in scrubber.scrub(f"a {known} b")
    assert scrubber.scrub(f"a {tokens[1]} b") == f"a {tokens[1]} b"
    assert len(scrubber._held) <= HELD_MAX
