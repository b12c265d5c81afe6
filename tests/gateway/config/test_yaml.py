"""Strict YAML: what scalars and aliases mean, what is refused and where, and that nothing can make the loader raise."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.config.writing import data_of, lines, parsed


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("true, false, True, yes, no, on", [True, False, "True", "yes", "no", "on"]),
        ("null, ~, Null", [None, None, "Null"]),
        ("12, -3, +3, 0, 012, 0x1F, 0o17, 1_000", [12, -3, 3, 0, "012", "0x1F", "0o17", "1_000"]),
        ("1:30, 2026-01-31, 1.2.3, =", ["1:30", "2026-01-31", "1.2.3", "="]),
        ("1.5, .5, 1., 1e3, .inf, .nan", [1.5, 0.5, 1.0, 1000.0, ".inf", ".nan"]),
        ('\'12\', "true", ""', ["12", "true", ""]),
        ("{ a: ${B:-x, y: [z]} }, ${A}, ./x/{agent}", [{"a": "${B:-x, y: [z]}"}, "${A}", "./x/{agent}"]),
    ],
)
def test_a_scalar_means_what_yaml_1_2_says(written: str, meant: list[object]) -> None:
    assert repr(data_of(f"[{written}]")) == repr(meant)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("a: &x 1\nb: *x\n", {"a": 1, "b": 1}),
        ("a: &x [1, { c: 2 }]\nb: [*x, *x]\n", {"a": [1, {"c": 2}], "b": [[1, {"c": 2}], [1, {"c": 2}]]}),
        ("a: &x 1\nb: &x 2\nc: *x\nd: [*x]\n", {"a": 1, "b": 2, "c": 2, "d": [2]}),
        ("a: &x ''\nb: *x\n", {"a": "", "b": ""}),
        ("a: &x {}\n", {"a": {}}),
        # merge keys: what is written wins, wherever; of several sources the first
        ("a: &x { c: 1, d: 2 }\nb: { <<: *x, d: 3 }\n", {"a": {"c": 1, "d": 2}, "b": {"c": 1, "d": 3}}),
        ("a: &x { c: 1, d: 2 }\nb: { d: 3, <<: *x }\n", {"a": {"c": 1, "d": 2}, "b": {"c": 1, "d": 3}}),
        ("a: &x { c: 1 }\ny: &y { c: 2, d: 2 }\nb: { <<: [*x, *y] }\n",
         {"a": {"c": 1}, "y": {"c": 2, "d": 2}, "b": {"c": 1, "d": 2}}),
        ("a: &x { c: 1 }\ny: &y { <<: *x, d: 2 }\nb: { <<: *y, e: 3 }\nf: *y\n",
         {"a": {"c": 1}, "y": {"c": 1, "d": 2}, "b": {"c": 1, "d": 2, "e": 3}, "f": {"c": 1, "d": 2}}),
        ("a: &x { c: { p: 1 } }\nb: { <<: *x, c: { q: 2 } }\n", {"a": {"c": {"p": 1}}, "b": {"c": {"q": 2}}}),
        ("b: { <<: [] }\n", {"b": {}}),
        ("b: { '<<': 1 }\n", {"b": {"<<": 1}}),
    ],
)  # fmt: skip
def test_an_alias_means_what_its_anchor_says(text: str, data: object) -> None:
    assert data_of(text) == data


def test_nothing_is_shared_between_an_anchor_and_its_aliases() -> None:
    data = data_of("a: &x { c: [1] }\nb: *x\nd: { <<: *x }\n")
    assert len({id(data[name]["c"]) for name in "abd"}) == 3


NO_ANCHOR = "there is no anchor (&…) of this name above — put text that begins with * in quotes"
UNUSED = "no alias (*…) refers to this anchor (&…) — put text that begins with & in quotes"
MERGES = "<< takes a mapping or a list of mappings, such as *name"


def deep(levels: int) -> str:
    """A value behind an alias, so many levels below the top."""
    return "a: &x " + "[" * 40 + "]" * 40 + "\nb: " + "[" * (levels - 41) + "*x" + "]" * (levels - 41)


def repeated(values: int) -> str:
    """So many values that come of aliases."""
    return "a: &x [" + "1, " * 99 + "]\nb: &y 1\nc: [" + "*x, " * (values // 100) + "*y, " * (values % 100) + "*y]\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\na: 4\n", ["3:1: a: duplicate key — it is in line 1 already",
                                      "4:1: a: duplicate key — it is in line 1 already"]),
        ("a: { b: 1, 'b': 2 }\n", ["1:12: a.b: duplicate key — it is in line 1 already"]),
        ("a: !!python/object/apply:os.system [x]\nb: !own 1\nc: !!binary aGk=\nd: !!set { x }\n",
         ["1:4: a: tags (!…) are not allowed",
          "2:4: b: tags (!…) are not allowed — put text that begins with ! in quotes",
          "3:4: c: tags (!…) are not allowed — put text that begins with ! in quotes",
          "4:4: d: tags (!…) are not allowed"]),
        ("a: !un!known 1\n", ["1:4: tags (!…) are not allowed — put text that begins with ! in quotes"]),
        ("a: !!int 1\nb: ! 2\n", ["1:4: a: tags (!…) are not allowed — put text that begins with ! in quotes",
                                   "2:4: b: tags (!…) are not allowed — put text that begins with ! in quotes"]),
        ("true: x\n~: y\n", ["1:1: true: a key must be text — put it in quotes",
                             '2:1: ["~"]: a key must be text — put it in quotes']),
        ("? [a]\n: 1\n", ["1:3: a key must be text, not a list or a mapping"]),
        ("a: 1\n---\nb: 2\n", ["2:1: a second document — a config file has one; remove this ---"]),
        ("a: 1\na: 2\nb: @c\n", ["2:1: a: duplicate key — it is in line 1 already",
                               "3:4: found character '@' that cannot start any token — put the text in quotes"]),
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
        # anchors, aliases and merge keys
        ("a: *x\nb: &x 1\n", [f"1:4: a: {NO_ANCHOR}", f"2:4: b: {UNUSED}"]),
        ("a: &x [*x]\n", [f"1:8: a[0]: {NO_ANCHOR}"]),
        ("a: &x { <<: *x }\n", [f'1:13: a["<<"]: {NO_ANCHOR}']),
        ("a: &x\nb: 1\n", ["1:4: a: an anchor (&…) without a value — put text that begins with & in quotes"]),
        ("a: &x y\n*x : 1\n", [f"1:4: a: {UNUSED}",
                               "2:1: an alias (*…) cannot be a key — put text that begins with * in quotes"]),
        ("a: &x 1\nb: { <<: *x }\n", [f'2:6: b["<<"]: {MERGES}']),
        ("a: &x { ? [k] : 1 }\nb: { <<: *x }\n", ["1:11: a: a key must be text, not a list or a mapping"]),
        ("b: { <<: {}, <<: {} }\n", ['1:14: b["<<"]: duplicate key — it is in line 1 already']),
        ("a: &x { c: !own 1 }\nb: *x\nd: { <<: *x }\n",
         ["1:12: a.c: tags (!…) are not allowed — put text that begins with ! in quotes"]),
        ("a: &x " + "[" * 40 + "]" * 40 + "\nb: " + "[" * 40 + "*x" + "]" * 40,
         ["2:44: nested deeper than 64 levels"]),
        (deep(65), ["2:28: nested deeper than 64 levels"]),
        (f"a: {'9' * 301}\n", ["1:4: a: a number with too many digits — put it in quotes if it is text"]),
        ("a: &x 1\nb: @c\n", ["2:4: found character '@' that cannot start any token — put the text in quotes"]),
    ],
)  # fmt: skip
def test_what_is_refused_is_refused_with_its_place(text: str | bytes, expected: list[str]) -> None:
    assert parsed(text)[1] == [f"config.yaml:{line}" for line in expected]


def test_a_file_full_of_mistakes_ends_with_a_count() -> None:
    _, complaints = parsed("".join(f"k{n}: *x\n" for n in range(150)))
    assert len(complaints) == 101
    assert complaints[-1] == "config.yaml:101:7: 50 more problems from here on"


BARELY = [b"a: 1\n" + b"#" * (1_048_576 - 5), "[" * 64 + "]" * 64, deep(64), f"a: {'9' * 300}\n", repeated(9_999)]


@pytest.mark.parametrize("text", BARELY)
def test_what_is_just_not_too_much_is_read(text: str | bytes) -> None:
    assert data_of(text)


def bomb(item: str) -> str:
    """Nine lines a level, of which each stands for nine of the level before."""
    levels = [f"a{n}: &a{n} {{ k: [{', '.join([item.replace('N', f'a{n - 1}')] * 9)}] }}\n" for n in range(1, 30)]
    return "a0: &a0 { x: 1, y: 2 }\n" + "".join(levels)


MERGED_OFTEN = "a: &a { " + ", ".join(f"k{n}: 1" for n in range(900)) + " }\nb: [" + "{ <<: *a }, " * 100 + "]\n"


@pytest.mark.parametrize("text", [bomb("*N"), bomb("{ <<: *N, k: *N }"), MERGED_OFTEN], ids=["list", "merge", "often"])
def test_an_alias_bomb_is_stopped_with_a_sentence_and_costs_nothing(text: str) -> None:
    document, (complaint,) = parsed(text)
    assert document is None
    assert complaint.endswith(": the aliases of the file repeat more than 10,000 values — write fewer")


def test_a_mistake_behind_an_alias_is_blamed_once_where_it_was_written(tmp_path: Path) -> None:
    text = """\
    agents:
      list:
        - id: a
          tools: &tools
            alow: [read]
            deny: [raed]
            message: { targets: ["${UNSET}"] }
        - { id: b, tools: *tools }
        - { id: c, tools: { <<: *tools } }
    """
    assert lines(tmp_path, text) == [
        'config.yaml:5:9: agents.list[0].tools.alow: unknown key — did you mean "allow"?',
        'config.yaml:6:16: agents.list[0].tools.deny[0]: unknown tool "raed" — did you mean "read"?',
        "config.yaml:7:30: agents.list[0].tools.message.targets[0]: UNSET is not set in the environment — set it, or write "
        "${UNSET:-} if it may be empty",
    ]


def test_what_begins_with_x_is_a_place_for_anchors_and_nothing_else(tmp_path: Path) -> None:
    agent = "agents: { list: [ { id: a } ] }\n"
    assert lines(tmp_path, f"x-mine: {{ any: [thing] }}\n{agent}") == []
    assert lines(tmp_path, f"{agent}logging: {{ x-mine: 1 }}\n") != []


_PIECES = ["- ", ": ", "? ", "--- ", "...\n", "<<", "<<: ", "&x ", "*x ", "：", "!!"]
_PIECES += ["${", "${A}", "$${", "{agent}", "\\U"]
_yaml_pieces = st.sampled_from([*"{}[],:?-&*!|>'\"%@`#\\ \n\taé", *_PIECES])


@given(st.lists(_yaml_pieces | st.text(max_size=4), max_size=30).map("".join) | st.binary(max_size=60))
def test_nothing_can_make_the_loader_raise(text: str | bytes) -> None:
    document, complaints = parsed(text.encode(errors="surrogatepass") if isinstance(text, str) else text)
    assert document is not None or complaints
    assert all("\n" not in complaint for complaint in complaints)
