"""The oracle sees what it is there to see, on ledgers made by hand."""

import pytest

from tests.chaos.ledger import Asked, Doubt, Ledger, Message, Shown, Wish, asked_of, running
from tests.chaos.oracle import Verdict, judge
from tests.chaos.points import BATCH, POINTS


def message(number: int, chat: str = "a", wish: Wish = "plain", *, acked: bool = True) -> Message:
    return Message(
        serial=f"S{number:06d}", chat=chat, wish=wish, message_id=f"om_{number}", acked=number if acked else None
    )


def shown(number: int, chat: str = "a", *, take: int = 1, part: int = 1, parts: int = 1, kills: int = 0) -> Shown:
    return Shown(chat=chat, serial=f"S{number:06d}", take=take, part=part, parts=parts, kills=kills)


def ledger(messages: list[Message], replies: list[Shown], **more: object) -> Ledger:
    return Ledger(messages={m.serial: m for m in messages}, shown=replies, **more)  # type: ignore[arg-type]


LONG = [shown(3, "b", part=part, parts=3) for part in (1, 2, 3)]
THREE = [message(1), message(2), message(3, "b", "long")]


def red(found: Ledger) -> set[str]:
    """The kinds that are not clean."""
    verdict = judge(found)
    assert verdict.clean == (not any(vars(verdict).values()))
    return {kind for kind, words in vars(verdict).items() if words}


def test_a_run_without_fault_is_clean() -> None:
    asked = [Asked(serials=("S000001", "S000002"), takes=(("S000001", 1),))]
    good = ledger(THREE, [shown(1), LONG[0], shown(2), *LONG[1:]], asked=asked, effects=["S000001", "S000002"])
    assert judge(good) == Verdict()


@pytest.mark.parametrize(
    "replies",
    [
        pytest.param([shown(1), *LONG], id="no reply"),
        pytest.param([shown(1), shown(2), *LONG[:2]], id="a part is missing"),
        pytest.param([shown(1), shown(2, "b"), *LONG], id="in the wrong chat"),
        pytest.param([shown(1), shown(2, take=0), *LONG], id="an apology that nothing excuses"),
    ],
)
def test_a_lost_message_is_seen(replies: list[Shown]) -> None:
    assert "lost" in red(ledger(THREE, replies))


def test_a_message_that_was_never_taken_is_lost() -> None:
    assert red(ledger([message(1, acked=False)], [])) == {"lost"}


def test_after_three_kills_an_apology_will_do() -> None:
    assert red(ledger([message(1)], [shown(1, take=0, kills=3)], kills=3)) == set()
    assert red(ledger([message(1)], [shown(1, take=0, kills=2)], kills=3)) == {"lost"}


def test_a_doubled_reply_is_seen() -> None:
    assert red(ledger(THREE, [shown(1), shown(2), shown(2), *LONG])) == {"dup_replies"}
    assert red(ledger(THREE, [shown(1), shown(2), *LONG, LONG[2]])) == {"dup_replies"}


def doubts(
    *parts: Shown, times: int = 1, given_up: bool = True, told: bool = True
) -> dict[tuple[str, int, int], Doubt]:
    return {
        (s.serial, s.take, s.part): Doubt(
            chat=s.chat,
            serial=s.serial,
            take=s.take,
            part=s.part,
            parts=s.parts,
            times=times,
            given_up=given_up,
            told=told,
        )
        for s in parts
    }


TELEGRAM = {"repeats": False, "recognises": False, "kills": 1}
REPEATED = {"repeats": True, "recognises": False, "kills": 1, "counted": 1}


def test_a_part_that_was_given_up_in_doubt_is_not_lost_but_the_others_of_its_reply_are() -> None:
    one = ledger([message(3, "b", "long")], LONG[:2], doubts=doubts(LONG[2]), **TELEGRAM)
    assert red(one) == set()
    assert red(ledger([message(3, "b", "long")], LONG[:1], doubts=doubts(LONG[2]), **TELEGRAM)) == {"lost"}
    elsewhere = doubts(shown(1, "b"))
    assert red(ledger([message(1)], [], doubts=elsewhere, **TELEGRAM)) == {"lost"}


def test_what_was_given_up_in_silence_is_lost_and_hidden() -> None:
    assert red(ledger([message(1)], [], doubts=doubts(shown(1), told=False), **TELEGRAM)) == {"lost", "hidden"}


def test_a_part_repeated_in_doubt_may_be_seen_twice_where_the_config_says_so_and_not_three_times() -> None:
    repeated = doubts(shown(1), given_up=False)
    assert red(ledger([message(1)], [shown(1)] * 2, doubts=repeated, **REPEATED)) == set()
    assert red(ledger([message(1)], [shown(1)] * 3, doubts=repeated, **REPEATED)) == {"dup_replies"}
    assert red(ledger([message(1)], [shown(1)] * 2, doubts=repeated, **TELEGRAM)) == {"dup_replies", "hidden"}
    assert red(ledger([message(1)], [shown(1)] * 2, doubts=repeated, **REPEATED | {"recognises": True})) == {
        "dup_replies"
    }
    assert red(ledger([message(1)], [], doubts=doubts(shown(1)), **REPEATED)) == {"hidden"}


def test_doubts_that_no_death_explains_or_that_the_metric_does_not_count_are_seen() -> None:
    assert red(ledger([message(1)], [shown(1)], doubts=doubts(shown(1)), **TELEGRAM | {"kills": 0})) == {"hidden"}
    repeated = doubts(shown(1), given_up=False)
    assert red(ledger([message(1)], [shown(1)], doubts=repeated, **REPEATED | {"counted": 0})) == {"hidden"}
    assert red(ledger([message(1)], [shown(1)], doubts=repeated, **REPEATED | {"counted": None})) == set()


@pytest.mark.parametrize(
    ("replies", "asked"),
    [
        pytest.param([shown(1)], [Asked(serials=("S000001", "S000001"))], id="twice in one history"),
        pytest.param([shown(1)], [Asked(serials=("S000001",), takes=(("S000001", 2),))], id="another answer is kept"),
        pytest.param([shown(1), shown(1, take=2, part=2, parts=2)], [], id="two answers shown"),
    ],
)
def test_a_doubled_turn_is_seen(replies: list[Shown], asked: list[Asked]) -> None:
    assert "dup_turns" in red(ledger([message(1)], replies, asked=asked))


@pytest.mark.parametrize(
    ("replies", "asked"),
    [
        pytest.param([shown(2), shown(1), *LONG], [], id="replies"),
        pytest.param([shown(1), shown(2), LONG[1], LONG[0], LONG[2]], [], id="parts"),
        pytest.param([shown(1), shown(2), *LONG], [Asked(serials=("S000002", "S000001"))], id="history"),
    ],
)
def test_a_wrong_order_is_seen(replies: list[Shown], asked: list[Asked]) -> None:
    assert red(ledger(THREE, replies, asked=asked)) == {"order"}


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"effects": ["S000001", "S000001"]}, "reruns"),
        ({"orphans": ["sh -c sleep"]}, "orphans"),
        ({"litter": [".clawgate-00"]}, "litter"),
        ({"torn": ["note-1.txt"]}, "litter"),
        ({"refused": ["feishu: 230001"]}, "refused"),
        ({"asked": [Asked(serials=(), refused="model: 400 no")]}, "refused"),
    ],
)
def test_what_else_goes_wrong_is_seen(more: dict[str, object], kind: str) -> None:
    assert red(ledger([message(1)], [shown(1)], **more)) == {kind}


def test_a_request_is_read_for_its_serials_and_answers() -> None:
    body = {
        "messages": [
            {"role": "user", "content": "Alice: S000001 long"},
            {"role": "assistant", "content": [{"type": "text", "text": "R S000001 n2 p1/3 x\nR S000001 n2 p2/3 y"}]},
            {"role": "user", "content": [{"type": "text", "text": "{}"}, {"type": "text", "text": "S000002 exec"}]},
        ]
    }
    assert asked_of(body) == Asked(serials=("S000001", "S000002"), takes=(("S000001", 2),))
    assert running(body) == ("S000002", "exec", False)
    body["messages"].append({"role": "assistant", "content": [{"type": "tool_use", "name": "exec"}]})
    assert running(body) == ("S000002", "exec", True)


def test_the_catalogue_names_every_point_once() -> None:
    names = [point.name for point in POINTS]
    assert len(names) == len(set(names))
    assert BATCH.count("long") == 2
