"""A colon without its space, and the full-width colon of a Chinese keyboard: blamed where they stand, in every position."""

from pathlib import Path

import pytest

from tests.gateway.config.writing import lines

TIGHT = "a space is missing behind the colon — write key: value"
WIDE = "a full-width colon (：) — write a plain one and a space, key: value"

# The slip stands where @ is; it is written with each of the two colons. The place is that of its key.
POSITIONS = {
    "the first key of an agent, with comments below": (
        "agents:\n  list:\n    - id@coder\n      # what it is called\n\n      # 名称\n      name: Coder\n",
        "3:7",
    ),
    "a key in the middle of an agent": (
        "agents:\n  list:\n    - id: coder\n      name@Clawgate\n      # comment\n      # another: one\n      x: y\n",
        "4:7",
    ),
    "the last key of the last agent": ("agents:\n  list:\n    - id: coder\n      name@Clawgate\n", "4:7"),
    "the last line, without a line break": ("agents:\n  list:\n    - id: coder\n      name@Clawgate", "4:7"),
    "the last line, with a comment": ("agents:\n  list:\n    - id: coder\n      name@Clawgate   # mine: x\n", "4:7"),
    "the last key before another section": (
        "server:\n  host: 127.0.0.1\n  port@8080\n\n# the agents\nagents:\n  list:\n    - id: a\n",
        "3:3",
    ),
    "the first key of a section": ("server:\n  host@127.0.0.1\n  port: 1\nagents: { list: [ { id: a } ] }\n", "2:3"),
    "the only key of a section": ("server:\n  port@8080\nagents: { list: [ { id: a } ] }\n", "2:3"),
    "the only key of a section, with comments around": (
        "server:\n  # which\n  port@8080  # this: one\n  # no other\nagents: { list: [ { id: a } ] }\n",
        "3:3",
    ),
    "the only key of the first agent": ("agents:\n  list:\n    - id@coder\n", "3:7"),
    "the only key of an agent among others": (
        "agents:\n  list:\n    - id: a\n    - id@coder\n    - id: b\n",
        "4:7",
    ),
    "two keys of a section": ("server:\n  host@127.0.0.1\n  port@8080\nagents: { list: [ { id: a } ] }\n", "2:3"),
    "a key of Feishu": (
        "channels:\n  feishu:\n    appId: cli_1\n    appSecret@s\n    encryptKey: k\nagents: { list: [ { id: a } ] }\n",
        "4:5",
    ),
    "a key of Telegram, before the next channel": (
        "channels:\n  telegram:\n    mode@polling\n\n  web:\n    enabled: true\nagents: { list: [ { id: a } ] }\n",
        "3:5",
    ),
    "a key of an account": (
        "channels:\n  feishu:\n    accounts:\n      b:\n        appId@cli_2\n        appSecret: s\n        encryptKey: k\n"
        "agents: { list: [ { id: a } ] }\n",
        "5:9",
    ),
    "a key of a binding": ("agents: { list: [ { id: a } ] }\nbindings:\n  - agent@a\n    match: { chat: x }\n", "3:5"),
    "a key of a match": ("agents: { list: [ { id: a } ] }\nbindings:\n  - agent: a\n    match:\n      chat@x\n", "5:7"),
    "a list as the value": ("agents:\n  list:\n    - id: a\n      model@[demo/guide, qwen/x]\n      name: A\n", "4:7"),
    "text in quotes as the value": ('agents:\n  list:\n    - id: a\n      name@"Cl: aw"\n      thinking: low\n', "4:7"),
    "a reference as the value": ("database:\n  url@${DB:-sqlite:///./x.db}\nagents: { list: [ { id: a } ] }\n", "2:3"),
    "the only key of a flow mapping": ("agents: { list: [ { id@coder } ] }\n", "1:21"),
    "the last key of a flow mapping": ("agents: { list: [ { id: a, name@Clawgate } ] }\n", "1:28"),
    "the first key of a flow mapping": ("agents: { list: [ { name@Clawgate, id: a } ] }\n", "1:21"),
    "a key of a flow mapping over lines": ("agents: { list: [ {\n  id: a,\n  name@A, # n\n  thinking: low } ] }\n", "3:3"),
    "a flow mapping in a block": ("server: { host: 127.0.0.1, port@8080 }\nagents:\n  list:\n    - id: a\n", "1:28"),
    "a header": (
        "providers:\n  deepseek:\n    headers:\n      x-team@blue\nagents: { list: [ { id: a } ] }\n",
        "4:7",
    ),
    "behind text over several lines": (
        "agents:\n  list:\n    - id: a\n      systemPrompt: |\n        Be kind: x\n        注意：好\n      name@Clawgate\n",
        "7:7",
    ),
}  # fmt: skip


@pytest.mark.parametrize("colon", [":", "：", "： "], ids=["tight", "wide", "wide with a space"])
@pytest.mark.parametrize("where", POSITIONS)
def test_the_slip_is_blamed_where_it_stands(tmp_path: Path, where: str, colon: str) -> None:
    text, place = POSITIONS[where]
    found = lines(tmp_path, text.replace("@", colon), {"DB": ""})
    first = found[0].removeprefix("config.yaml:")
    assert first.startswith(f"{place}: ")
    assert first.endswith(TIGHT if colon == ":" else WIDE)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("agents：\n  list:\n    - id: a\n", "1:1"),
        ("server: {}\nagents：\n  list:\n    - id: a\n", "2:1"),
        ("agents:\n  list：\n    - id: a\n", "2:3"),
        ("agents: { list: [ { id: a } ] }\nchannels:\n  feishu： # bots\n    appId: cli_1\n", "3:3"),
        ("agents： { list: [ { id: a } ] }\n", "1:1"),
    ],
)
def test_a_wide_colon_behind_the_key_of_a_block_is_blamed_too(tmp_path: Path, text: str, place: str) -> None:
    first = lines(tmp_path, text)[0].removeprefix("config.yaml:")
    assert first.startswith(f"{place}: ")
    assert first.endswith(WIDE)


def test_every_slip_of_a_file_comes_at_once(tmp_path: Path) -> None:
    text = "server:\n  host：127.0.0.1\n  port: 1\nlogging:\n  level info\n  format: json\n"
    text += "agents:\n  list:\n    - id:a\n      name: A\n"
    assert [line.removeprefix("config.yaml:")[:3] for line in lines(tmp_path, text)] == ["2:3", "5:3", "9:7"]


def test_what_stands_behind_the_colon_is_not_shown(tmp_path: Path) -> None:
    for text, _ in POSITIONS.values():
        for colon in (":", "："):
            secret = "".join(char + "canary91827" if char == "@" else char for char in text)
            assert "canary" not in "\n".join(lines(tmp_path, secret.replace("@", colon)))


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
