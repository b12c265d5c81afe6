"""The oracle sees what it is there to see, on ledgers made by hand."""

from typing import Any

import pytest

from tests.chaos.ledger import Doubt, Due, Ledger, Message, Request, Shown, Wish, request, running
from tests.chaos.ledger import shown as shown_of
from tests.chaos.oracle import judge

ONE, TWO = "S000001", "S000002"


def message(number: int, chat: str = "a", wish: Wish = "plain", *, acked: bool = True) -> Message:
    return Message(serial=f"S{number:06d}", chat=chat, wish=wish, acked=number if acked else None)


def shown(number: int, chat: str = "a", *, take: int = 1, part: int = 1, parts: int = 1, kills: int = 0) -> Shown:
    return Shown(chat=chat, serial=f"S{number:06d}", take=take, part=part, parts=parts, kills=kills)


def doubts(part: Shown, **more: Any) -> dict[tuple[str, int, int], Doubt]:
    return {part.key: Doubt(part=part, **more)}


ANSWER = shown(1)
LONG = [shown(3, "b", part=part, parts=3) for part in (1, 2, 3)]
THREE = [message(1), message(2), message(3, "b", "long")]
ALL = {"messages": THREE}
DOUBT: dict[str, Any] = {"repeats": False, "recognises": False, "kills": 1, "doubts": doubts(ANSWER)}
"""A platform that recognises nothing, and a config that gives up what may have arrived."""
LAST = {"messages": THREE[2:], "doubts": doubts(LONG[2])}
AFTER = Message(serial="A000001", chat="a", wish="decided", acked=-1)
GOES_ON = Shown(chat="a", serial="A000001", take=1)
ASKED: dict[str, Any] = {
    "messages": [message(1, wish="exec"), AFTER],
    "decisions": {ONE: "allow-once"},
    "effects": [ONE],
    "requests": [Request(serials=(ONE, "A000001"), ran=(ONE,))],
}
GIVEN_UP = {
    "repeats": False,
    "kills": 1,
    "effects": [],
    "requests": [],
    "doubts": doubts(Shown(chat="a", serial="Q000001")),
}
AT_TEN = {ONE: Due(at=10.0, late_seconds=15.0)}
RESULT = Shown(chat="a", serial="T000001", take=1)
HANDED = Message(serial="T000001", chat="a", wish="handed", acked=-1)
TASK: dict[str, Any] = {"messages": [message(1, wish="task"), HANDED]}
REPEATED = DOUBT | {"repeats": True, "counted": 1, "doubts": doubts(ANSWER, given_up=False)}


def red(replies: list[Shown], messages: list[Message] | None = None, **more: Any) -> set[str]:
    """The kinds that are not clean."""
    written = {m.serial: m for m in messages or THREE[:1]}
    return {kind for kind, words in judge(Ledger(messages=written, shown=replies, **more)).items() if words}


def test_a_run_without_fault_is_clean() -> None:
    requests = [Request(serials=(ONE, TWO), takes=((ONE, 1),))]
    assert not red([shown(1), LONG[0], shown(2), *LONG[1:]], THREE, requests=requests, effects=[ONE, TWO])


@pytest.mark.parametrize(
    ("replies", "more", "kinds"),
    [
        pytest.param([shown(1), *LONG], ALL, {"lost"}, id="no reply"),
        pytest.param([shown(1), shown(2), *LONG[:2]], ALL, {"lost"}, id="a part is missing"),
        pytest.param([shown(1), shown(2, "b"), *LONG], ALL, {"lost"}, id="in the wrong chat"),
        pytest.param([shown(1), shown(2, take=0), *LONG], ALL, {"lost"}, id="an apology that nothing excuses"),
        pytest.param([shown(1), shown(2), shown(2), *LONG], ALL, {"dup_replies"}, id="a reply twice"),
        pytest.param([shown(1), shown(2), *LONG, LONG[2]], ALL, {"dup_replies"}, id="a part twice"),
        pytest.param([shown(2), shown(1), *LONG], ALL, {"order"}, id="replies in a wrong order"),
        pytest.param([shown(1), shown(2), LONG[1], LONG[0], LONG[2]], ALL, {"order"}, id="parts in a wrong order"),
        pytest.param([], {"messages": [message(1, acked=False)]}, {"lost"}, id="never taken"),
        pytest.param([shown(1, take=0, kills=3)], {"kills": 3}, set(), id="an apology after three kills"),
        pytest.param([shown(1, take=0, kills=2)], {"kills": 3}, {"lost"}, id="an apology after two"),
        pytest.param([ANSWER], {"effects": [ONE, ONE]}, {"reruns"}, id="run again"),
        pytest.param([ANSWER], {"due": AT_TEN, "first_seen": {ONE: 10.5}}, set(), id="in time"),
        pytest.param([ANSWER], {"due": AT_TEN, "first_seen": {ONE: 9.9}}, {"early"}, id="early"),
        pytest.param([ANSWER], {"due": AT_TEN, "first_seen": {ONE: 30.0}}, {"late"}, id="late"),
        pytest.param([], {"due": AT_TEN}, {"lost"}, id="due and never seen"),
        pytest.param([ANSWER, RESULT], TASK, set(), id="a task and its result"),
        pytest.param([ANSWER], TASK, {"lost"}, id="no result of a task"),
        pytest.param([ANSWER, RESULT, RESULT], TASK, {"dup_replies"}, id="a result reported twice"),
        pytest.param(
            [ANSWER, RESULT],
            TASK | {"requests": [Request(serials=(ONE,), results=("T000001", "T000001"))]},
            {"dup_turns"},
            id="a result twice in one history",
        ),
        pytest.param([ANSWER], {"orphans": ["sh -c sleep"]}, {"orphans"}, id="outlived"),
        pytest.param([ANSWER], {"litter": [".clawgate-00"]}, {"litter"}, id="left behind"),
        pytest.param([ANSWER], {"refused": ["feishu: 230001"]}, {"refused"}, id="refused by the platform"),
        pytest.param([ANSWER], {"requests": [Request(serials=(), refused="400")]}, {"refused"}, id="by the model"),
        pytest.param([ANSWER], {"requests": [Request(serials=(ONE, ONE))]}, {"dup_turns"}, id="twice in one history"),
        pytest.param(
            [ANSWER], {"requests": [Request(serials=(ONE,), takes=((ONE, 2),))]}, {"dup_turns"}, id="another is kept"
        ),
        pytest.param([ANSWER, shown(1, take=2, part=2, parts=2)], {}, {"dup_turns"}, id="two answers shown"),
        pytest.param([ANSWER, GOES_ON], ASKED, set(), id="approved and run"),
        pytest.param([ANSWER], ASKED, {"lost"}, id="silent after the decision"),
        pytest.param([ANSWER, GOES_ON], ASKED | {"effects": []}, {"unapproved"}, id="a result of what did not run"),
        pytest.param([ANSWER, GOES_ON], ASKED | {"decisions": {ONE: "deny"}}, {"unapproved"}, id="run though denied"),
        pytest.param([ANSWER, GOES_ON], ASKED | {"decisions": {}}, {"unapproved"}, id="run though nobody decided"),
        pytest.param([ANSWER, GOES_ON], ASKED | {"unsettled": ["X is pending"]}, {"unsettled"}, id="without an end"),
        pytest.param([ANSWER], ASKED | GIVEN_UP, set(), id="a question that nobody may have seen"),
        pytest.param([ANSWER], {"requests": [Request(serials=(ONE,))] * 2}, {"dup_turns"}, id="two turns"),
        pytest.param([ANSWER], {"requests": [Request(serials=(ONE,))] * 2, "kills": 1}, set(), id="a turn for a death"),
        pytest.param(
            [ANSWER, shown(2)],
            {"messages": THREE[:2], "requests": [Request(serials=(TWO, ONE))]},
            {"order"},
            id="a history in a wrong order",
        ),
        pytest.param([], DOUBT, set(), id="given up, and the operator knows"),
        pytest.param([], DOUBT | {"doubts": doubts(shown(1, "b"))}, {"lost"}, id="in another chat"),
        pytest.param([], DOUBT | {"doubts": doubts(ANSWER, reported=False)}, {"lost", "hidden"}, id="in silence"),
        pytest.param([ANSWER], DOUBT | {"kills": 0}, {"hidden"}, id="without a death"),
        pytest.param([ANSWER] * 2, REPEATED, set(), id="repeated and seen twice"),
        pytest.param([ANSWER] * 3, REPEATED, {"dup_replies"}, id="seen three times"),
        pytest.param([ANSWER] * 2, REPEATED | {"recognises": True}, {"dup_replies"}, id="though it recognises"),
        pytest.param([ANSWER] * 2, REPEATED | {"repeats": False}, {"dup_replies", "hidden"}, id="repeated unasked"),
        pytest.param([], REPEATED | {"doubts": doubts(ANSWER)}, {"hidden"}, id="given up unasked"),
        pytest.param([ANSWER], REPEATED | {"counted": 0}, {"hidden"}, id="not counted"),
        pytest.param([ANSWER], REPEATED | {"counted": None}, set(), id="no count"),
        pytest.param(LONG[:2], DOUBT | LAST, set(), id="a part given up"),
        pytest.param(LONG[:1], DOUBT | LAST, {"lost"}, id="a part given up and another missing"),
    ],
)
def test_oracle_sees_faults_and_excuses_recorded_doubts(
    replies: list[Shown], more: dict[str, Any], kinds: set[str]
) -> None:
    assert red(replies, **more) == kinds


def test_a_request_is_read_for_its_serials_and_answers() -> None:
    body = {
        "messages": [
            {"role": "user", "content": f"Alice: {ONE} long"},
            {"role": "assistant", "content": [{"type": "text", "text": f"R {ONE} n2 p1/3 x\nR {ONE} n2 p2/3 y"}]},
            {"role": "user", "content": [{"type": "text", "text": "{}"}, {"type": "text", "text": f"{TWO} exec"}]},
        ]
    }
    assert request(body) == Request(serials=(ONE, TWO), takes=((ONE, 2),))
    assert running(body) == (TWO, "exec", False)
    body["messages"].append({"role": "assistant", "content": [{"type": "tool_use", "name": "exec"}]})
    assert running(body) == (TWO, "exec", True)


def test_what_goes_on_after_an_approval_is_known_by_its_call() -> None:
    call = {"type": "tool_use", "id": "c", "name": "exec", "input": {"command": f"echo {ONE} >> effects.txt; : x"}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": '{"error_code": "EXEC_APPROVAL_PENDING"}'}
    asks = [
        {"role": "user", "content": f"{ONE} exec"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    assert running({"messages": asks}) == (ONE, "exec", True)
    assert request({"messages": asks}) == Request(serials=(ONE,), asked=(ONE,))
    goes_on = [
        {"role": "user", "content": f"{TWO} plain"},
        {"role": "user", "content": "[message_id: approval-X]\n(A note of the gateway.)"},
        {"role": "assistant", "content": [call | {"id": "d"}]},
        {"role": "user", "content": [result | {"tool_use_id": "d", "content": "exit code 0"}]},
    ]
    assert running({"messages": asks + goes_on}) == ("A000001", "decided", True)
    assert request({"messages": asks + goes_on}) == Request(serials=(ONE, TWO, "A000001"), asked=(ONE,), ran=(ONE,))


def test_oracle_knows_tasks_by_serial() -> None:
    call = {"type": "tool_use", "id": "c", "name": "task", "input": {"action": "start", "prompt": "T000001 exec"}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": "<<<external>>>\nR T000001 n1 p1/1"}
    asks = [{"role": "user", "content": f"Alice: {ONE} task"}, {"role": "assistant", "content": [call]}]
    assert running({"messages": asks}) == (ONE, "task", True)
    assert running({"messages": [{"role": "user", "content": "T000001 exec"}]}) == ("T000001", "exec", False)
    reported = [*asks, {"role": "user", "content": [result]}]
    assert request({"messages": reported}) == Request(serials=(ONE,), results=("T000001",))
    failed = "Task 4d5ff749, `T000001`, has failed:\n\nThe model is not there."
    assert shown_of(failed, chat="a", serial=ONE, kills=3) == Shown(chat="a", serial="T000001", kills=3)
