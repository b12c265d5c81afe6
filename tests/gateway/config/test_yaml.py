"""Strict YAML: what scalars mean, what is refused and where, and that nothing at all can make the loader raise."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.config.writing import data_of, parsed


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("true, false, True, yes, no, on", [True, False, "True", "yes", "no", "on"]),
        ("null, ~, Null", [None, None, "Null"]),
        ("12, -3, +3, 0, 012, 0x1F, 0o17, 1_000", [12, -3, 3, 0, "012", "0x1F", "0o17", "1_000"]),
        ("1:30, 2026-01-31, 1.2.3, =", ["1:30", "2026-01-31", "1.2.3", "="]),
        ("1.5, .5, 1., 1e3, .inf, .nan", [1.5, 0.5, 1.0, 1000.0, ".inf", ".nan"]),
        ('\'12\', "true", ""', ["12", "true", ""]),
        ("!!str 12, ! 12, !!float 12, !!int \"12\", !!null ''", ["12", "12", 12.0, 12, None]),
        ("{ a: ${B:-x, y: [z]} }, ${A}, ./x/{agent}", [{"a": "${B:-x, y: [z]}"}, "${A}", "./x/{agent}"]),
    ],
)
def test_a_scalar_means_what_yaml_1_2_says(written: str, meant: list[object]) -> None:
    assert repr(data_of(f"[{written}]")) == repr(meant)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\na: 4\n", ["3:1: a: duplicate key — it stands in line 1 already",
                                      "4:1: a: duplicate key — it stands in line 1 already"]),
        ("a: { b: 1, 'b': 2 }\n", ["1:12: a.b: duplicate key — it stands in line 1 already"]),
        ("a: !!python/object/apply:os.system [x]\nb: !own 1\nc: !!binary aGk=\nd: !!set { x }\n",
         ["1:4: a: tags (!…) are not allowed",
          "2:4: b: tags (!…) are not allowed — put text that begins with ! in quotes",
          "3:4: c: tags (!…) are not allowed — put text that begins with ! in quotes",
          "4:4: d: tags (!…) are not allowed"]),
        ("a: !un!known 1\n", ["1:4: tags (!…) are not allowed — put text that begins with ! in quotes"]),
        ("a: !!int x\n", ["1:4: a: the value is not what its tag says — remove the tag"]),
        ("1: x\n", ["1:1: 1: a key must be text — put it in quotes"]),
        ("true: x\n~: y\n", ["1:1: true: a key must be text — put it in quotes",
                             '2:1: ["~"]: a key must be text — put it in quotes']),
        ("? [a]\n: 1\n", ["1:3: a key must be text, not a list or a mapping"]),
        ("a: 1\n---\nb: 2\n", ["2:1: a second document — a config file has one; remove this ---"]),
        ("a: @b\n", ["1:4: found character '@' that cannot start any token — put the text in quotes"]),
        (b"a: 1\nb: \xff\n", ["2:4: not UTF-8 — save the file in the encoding UTF-8"]),
        ("a: x\x07y\n", ["1:5: the character U+0007 is not allowed — remove it"]),
        ('a: "\\0"\n', ["1:4: a: the text holds a control character or half a character"]),
        ('a: "\\uD800"\n', ["1:4: a: the text holds a control character or half a character"]),
        ('a: "\\UFFFFFFFF"\n', ["1:1: this is not YAML that can be read, here or soon after"]),
        (f"a: {'9' * 5000}\n", ["1:4: a: a number with too many digits — put it in quotes if it is text"]),
        ("a: 1e999\n", ["1:4: a: a number out of range — put it in quotes if it is text"]),
        ("[" * 900, ["1:65: nested deeper than 64 levels"]),
        ("a: " + "{a: " * 900, ["1:256: nested deeper than 64 levels"]),
        (b"#" * 1_048_577, ["1:1: the file is larger than 1 MiB"]),
    ],
)  # fmt: skip
def test_what_is_refused_is_refused_with_its_place(text: str | bytes, expected: list[str]) -> None:
    assert parsed(text)[1] == [f"config.yaml:{line}" for line in expected]


def test_a_file_full_of_mistakes_ends_with_a_count() -> None:
    _, complaints = parsed("".join(f"k{n}: *x\n" for n in range(150)))
    assert len(complaints) == 101
    assert complaints[-1] == "config.yaml:101:7: 50 more problems from here on"


@pytest.mark.parametrize("text", [b"a: 1\n" + b"#" * (1_048_576 - 5), "[" * 64 + "]" * 64])
def test_what_is_just_not_too_much_is_read(text: str | bytes) -> None:
    assert data_of(text)


_PIECES = ["- ", ": ", "? ", "--- ", "...\n", "<<", "<<: ", "&x ", "*x ", "：", "!!"]
_PIECES += ["${", "${A}", "$${", "{agent}", "\\U"]
_yaml_pieces = st.sampled_from([*"{}[],:?-&*!|>'\"%@`#\\ \n\taé", *_PIECES])


@given(st.lists(_yaml_pieces | st.text(max_size=4), max_size=30).map("".join) | st.binary(max_size=60))
@settings(max_examples=300, deadline=None)
def test_nothing_can_make_the_loader_raise(text: str | bytes) -> None:
    document, complaints = parsed(text.encode(errors="surrogatepass") if isinstance(text, str) else text)
    assert document is not None or complaints
    assert all("\n" not in complaint for complaint in complaints)
