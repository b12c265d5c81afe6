"""Anchors, aliases and merge keys: what they mean, where their mistakes are blamed, and that they stay bounded."""

from pathlib import Path

import pytest

from tests.gateway.config.writing import data_of, lines, parsed


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


NO_ANCHOR = "no anchor (&…) of this name stands above — put text that begins with * in quotes"
UNUSED = "no alias (*…) refers to this anchor (&…) — put text that begins with & in quotes"
MERGES = "<< takes a mapping or a list of mappings, such as *name"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: *x\nb: &x 1\n", [f"1:4: a: {NO_ANCHOR}", f"2:4: b: {UNUSED}"]),
        ("a: &x [*x]\n", [f"1:8: a[0]: {NO_ANCHOR}"]),
        ("a: &x { c: *x, d: 2 }\nb: { <<: *x }\n", [f"1:12: a.c: {NO_ANCHOR}"]),
        ("a: &x { <<: *x }\n", [f'1:13: a["<<"]: {NO_ANCHOR}']),
        ("a: &x\nb: 1\n", ["1:4: a: an anchor (&…) without a value — put text that begins with & in quotes"]),
        ("a: &x y\n*x : 1\n", ["2:1: an alias (*…) cannot be a key — put text that begins with * in quotes",
                               f"1:4: a: {UNUSED}"]),
        ("a: &x 1\nb: { <<: *x }\n", [f'2:6: b["<<"]: {MERGES}']),
        ("a: &x { ? [k] : 1 }\nb: { <<: *x }\n", ["1:11: a: a key must be text, not a list or a mapping"]),
        ("b: { <<: }\n", [f'1:6: b["<<"]: {MERGES}']),
        ("b: { <<: {}, <<: {} }\n", ['1:14: b["<<"]: duplicate key — it stands in line 1 already']),
        ("a: &x { c: !own 1 }\nb: *x\nd: { <<: *x }\n",
         ["1:12: a.c: tags (!…) are not allowed — put text that begins with ! in quotes"]),
        ("a: &x { c: 1, c: 2 }\nb: *x\n", ["1:15: a.c: duplicate key — it stands in line 1 already"]),
        ("a: &x " + "[" * 40 + "]" * 40 + "\nb: " + "[" * 40 + "*x" + "]" * 40,
         ["2:44: nested deeper than 64 levels"]),
    ],
)  # fmt: skip
def test_what_cannot_be_followed_is_one_line_at_its_place(text: str, expected: list[str]) -> None:
    assert sorted(parsed(text)[1]) == sorted(f"config.yaml:{line}" for line in expected)


def bomb(item: str) -> str:
    """Nine lines a level, of which each stands for nine of the level before."""
    lines = [f"a{n}: &a{n} {{ k: [{', '.join([item.replace('N', f'a{n - 1}')] * 9)}] }}\n" for n in range(1, 30)]
    return "a0: &a0 { x: 1, y: 2 }\n" + "".join(lines)


MERGED_OFTEN = "a: &a { " + ", ".join(f"k{n}: 1" for n in range(900)) + " }\nb: [" + "{ <<: *a }, " * 100 + "]\n"


@pytest.mark.parametrize("text", [bomb("*N"), bomb("{ <<: *N, k: *N }"), MERGED_OFTEN], ids=["list", "merge", "often"])
def test_an_alias_bomb_is_stopped_with_a_sentence_and_costs_nothing(text: str) -> None:
    document, (complaint,) = parsed(text)
    assert document is None
    assert complaint.endswith(": the aliases of the file stand for more than 10,000 values — write fewer")


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
