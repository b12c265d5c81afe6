"""Which strings of a chat a summary must keep to the letter, and how it is judged."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.compaction import demanded, identifiers, missing
from agents.messages import Message, Text
from tests.agents.providers.requests import assistant, call, result, user

FOUND = {
    "see https://x.io/a?b=1&c=2. 请看http://内.cn:8080/报告": ["https://x.io/a?b=1&c=2", "8080"],
    "mail a.b+c@ex-ample.co.uk, 写给bob@qq.com吧": ["a.b+c@ex-ample.co.uk", "bob@qq.com"],
    "/data/报告.txt文件 把/data/x复制到~/y.": ["/data/报告.txt", "/data/x", "~/y"],
    "src/main.py and/or 10 km/h, a/b/c, `./x/y.json`": ["./x/y.json", "a/b/c", "src/main.py"],
    "C:\\Users\\bob\\x.txt on \\\\srv\\share": ["C:\\Users\\bob\\x.txt", "\\\\srv\\share"],
    "deadbeef 3fa9c1d at 550e8400-e29b-41d4-a716-446655440000": ["550e8400-e29b-41d4-a716-446655440000", "3fa9c1d"],
    "1,234,567 and 12 and ¥１２３４５ order98765 3.14159 999": ["1234567", "12345", "98765", "14159"],
}


@pytest.mark.parametrize(("text", "found"), FOUND.items())
def test_what_is_an_identifier(text: str, found: list[str]) -> None:
    assert [name for name in identifiers(text) if name in found] == found
    assert missing(identifiers(text), text) == []


def test_one_must_stand_as_it_is() -> None:
    names = ["/data/a", "12345", "3fa9c1d", "x@y.io"]
    assert missing(names, "- /data/a (12,345), 3fa9c1d, x@y.io!") == []
    assert missing(names, "/data/ab 123456 3fa9c1d0 xx@y.io") == names


def test_identifiers_demanded_of_a_summary() -> None:
    body = "[message_id: om_12345]\nou_77777: my order is 48213377"
    turn: list[Message] = [
        user(body), assistant(call("c")), result("c", "rows 55555, 66666"),
        assistant(Text(text="It is 55555, about 99999.")),
    ]  # fmt: skip
    assert demanded([turn], "earlier: 31415926", 1_000) == ["31415926", "48213377", "55555"]
    assert demanded([turn], "earlier: 31415926", 5) == ["55555"]


@given(st.text(alphabet="aZ09/\\.:@-_#~ 中，\n", max_size=200))
def test_a_text_always_keeps_its_own(text: str) -> None:
    assert missing(identifiers(text), text) == []


@pytest.mark.parametrize("piece", ["a/", "中/", "/中", "a.a@", "a-", "0a", "1,", "/", "a:\\", "a1"])
def test_identifiers_take_linear_time(piece: str) -> None:
    """Sixteen times if it were quadratic. In the processor's time, which other processes do not count towards."""

    def seconds(count: int) -> float:
        began = time.thread_time()
        identifiers(piece * count)
        return time.thread_time() - began

    assert min(seconds(40_000) for _ in range(3)) < 10 * min(seconds(10_000) for _ in range(3)) + 0.005
