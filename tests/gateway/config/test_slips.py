"""The usual slips in a YAML file: blamed where they were made, which is not where a parser notices them. First of all a
colon without its space, and the full-width colon of a Chinese keyboard."""

from pathlib import Path

import pytest

from tests.gateway.config.writing import lines, parsed

TIGHT = "a space is missing behind the colon — write key: value"
WIDE = "a full-width colon (：) — write a plain one and a space, key: value"


def with_agent(text: str) -> str:
    return text if "agents" in text else f"{text.rstrip()}\nagents: {{ list: [ {{ id: a }} ] }}\n"


# The slip stands where @ is; it is written with each of the two colons. The place is that of its key.
POSITIONS = [
    ("agents:\n  list:\n    - id@coder\n      # what it is called\n\n      # 名称\n      name: Coder\n", "3:7"),
    ("agents:\n  list:\n    - id: a\n      name@A\n      # comment\n      # another: one\n      x: y\n", "4:7"),
    ("server:\n  host: 127.0.0.1\n  port@8080\n\n# the agents\nagents:\n  list:\n    - id: a\n", "3:3"),
    ("server:\n  # which\n  port@8080  # this: one\n  # no other\n", "3:3"),
    ("agents:\n  list:\n    - id: a\n      model@[demo/guide, qwen/x]\n      name: A\n", "4:7"),
    ('agents:\n  list:\n    - id: a\n      name@"Cl: aw"\n      thinking: low\n', "4:7"),
    ("database:\n  url@${DB:-sqlite:///./x.db}\n", "2:3"),
    ("agents: { list: [ { id@coder } ] }\n", "1:21"),
    ("agents: { list: [ {\n  id: a,\n  name@A, # n\n  thinking: low } ] }\n", "3:3"),
    ("providers:\n  deepseek:\n    headers:\n      x-team@blue\n", "4:7"),
    ("agents:\n  list:\n    - id: a\n      systemPrompt: |\n        Be: x\n        注意：好\n      name@A\n", "7:7"),
]


@pytest.mark.parametrize("colon", [":", "：", "： "], ids=["tight", "wide", "wide with a space"])
@pytest.mark.parametrize(("text", "place"), POSITIONS)
def test_the_slip_is_blamed_where_it_stands(tmp_path: Path, text: str, place: str, colon: str) -> None:
    found = lines(tmp_path, with_agent(text.replace("@", colon)), {"DB": ""})
    first = found[0].removeprefix("config.yaml:")
    assert first.startswith(f"{place}: ")
    assert first.endswith(TIGHT if colon == ":" else WIDE)


def test_every_slip_of_a_file_comes_at_once(tmp_path: Path) -> None:
    text = "server:\n  host：127.0.0.1\n  port: 1\nlogging:\n  level info\n  format: json\n"
    text += "agents:\n  list:\n    - id:a\n      name: A\n"
    assert [line.removeprefix("config.yaml:")[:3] for line in lines(tmp_path, text)] == ["2:3", "5:3", "9:7"]


def test_what_stands_behind_the_colon_is_not_shown(tmp_path: Path) -> None:
    for text, _ in POSITIONS:
        for colon in (":", "："):
            secret = "".join(char + "canary91827" if char == "@" else char for char in text)
            assert "canary" not in "\n".join(lines(tmp_path, with_agent(secret.replace("@", colon))))


@pytest.mark.parametrize(
    "text",
    [
        "agents:\n  list:\n    - id: a\n      name: 时间：12:30\n      systemPrompt: 注意：请用中文\n",
        "agents:\n  list:\n    - id: a\n      systemPrompt: see https://a.example\n        or 注意：x\n",
        "agents: { list: [ { id: a, name: a:b, systemPrompt: 甲：乙 } ] }\n",
        "models: { 'mine/qwen:7b': { window: 4096 }, mine/qwen3:8b: { window: 4096 } }\nagents: { list: [ { id: a } ] }\n",
        "models:\n  mine/qwen3:8b:\n  mine/甲：乙:\n    window: 4096\nagents: { list: [ { id: a } ] }\n",
    ],
)
def test_colons_inside_text_and_names_are_nobodys_slip(tmp_path: Path, text: str) -> None:
    assert lines(tmp_path, text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("server:\n  host 127.0.0.1 # mine: here\n\n  # port\n  port: 1\n", "2:3: a colon is missing behind the key"),
        ("agents：  # bots\n  list:\n    - id: a\n", "1:1: a full-width colon (：) — write a plain one"),
        ("server:\n  host: a b: c\n", "2:12: a colon is not expected here"),
        ('server:\n  host: "127.0.0.1\n  port: 1\nx:\n  y: "z"\n', "2:9: a quotation mark opens here and never closes"),
        ("list:\n  - id: a\n   name: b\n    model: c\n", "3:4: this does not fit the lines above"),
        ("list:\n  - { a: x, b: { c: y }\n  - { a: z }\n", "2:5: what opens here is not closed with } before line 3"),
        ("a: [1, 2\nb: 3\n", "1:4: what opens here is not closed with ] before line 2"),
        ("a:\n\tb: 1\n", "2:1: a tab cannot indent YAML"),
        ("list:\n  - id: a\n  -id: b\n", "3:3: a space is missing behind the dash"),
        ("a: { b: x， c: y }\n", "1:10: full-width punctuation — write ， as it is in English"),
        ("a: { b: “x: y” }\n", "1:9: full-width punctuation — write “ as it is in English"),
        ("a:\n  b: 1\n  c\n  d: 1\n", "3:3: a colon is missing behind the key"),
    ],
)
def test_each_slip_is_told_where_it_was_made_with_its_fix(text: str, expected: str) -> None:
    document, (complaint,) = parsed(text)
    assert document is None
    assert complaint.removeprefix("config.yaml:").startswith(expected)
