"""References in a config: what they become, what they stay, and what is said where they cannot be filled in."""

import os
from pathlib import Path

import pytest

from gateway.config.load import Expansion
from gateway.config.problems import Findings
from gateway.config.yaml import Document, parse
from tests.gateway.config.writing import lines, loaded

ENV = {
    "WORD": "hello",
    "NUMBER": "8080",
    "YES": "true",
    "EMPTY": "",
    "NOTHING": "null",
    "NESTED": "${WORD}",
    "LIST": "[a]",
}
AGENTS = "agents: { list: [ { id: a } ] }\n"


def expanded(folder: Path, text: str) -> tuple[Document, Expansion, list[str]]:
    findings = Findings("c.yaml")
    expansion = Expansion(folder, ENV, findings)
    document = parse(text.encode(), findings, expansion.fill)
    assert document is not None
    return document, expansion, [str(problem) for problem in findings.problems]


@pytest.mark.parametrize(
    ("written", "becomes"),
    [
        ("${WORD}, '${WORD}', ${WORD}! ${WORD}", ["hello", "hello", "hello! hello"]),
        ("${UNSET:-fallback}, ${EMPTY:-fallback}, ${UNSET:-}, '${UNSET:-}'", ["fallback", "fallback", None, ""]),
        ("${UNSET:-https://h:1/x}, ${UNSET:-a: b, {c]}", ["https://h:1/x", "a: b, {c]"]),
        ("${NUMBER}, '${NUMBER}', ${UNSET:-9090}, 80${UNSET:-80}, 12", [8080, "8080", 9090, 8080, 12]),
        ("${YES}, ${NOTHING}, ${NESTED}, ${LIST}", [True, None, "${WORD}", "[a]"]),
        ("$${WORD}, $${NUMBER}0, $WORD, a $ b", ["${WORD}", "${NUMBER}0", "$WORD", "a $ b"]),
        ("{ ${WORD}: ${WORD} }", [{"${WORD}": "hello"}]),  # keys are never expanded
        ('"x ${WORD}\\n$${WORD}"', ["x hello\n${WORD}"]),
    ],
)
def test_a_reference_becomes_what_it_names(tmp_path: Path, written: str, becomes: list[object]) -> None:
    document, _, complaints = expanded(tmp_path, f"[{written}]\n")
    assert complaints == []
    assert repr(document.data) == repr(becomes)


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("${UNSET}", "UNSET is not set in the environment — set it, or write ${UNSET:-} if it may be empty"),
        ("${EMPTY}", "EMPTY is set but empty in the environment — set it, or write ${EMPTY:-} if it may be empty"),
        ("${WORD", "expected ${NAME}, ${NAME:-default} or ${file:path} — write $${ for a literal ${"),
        ("${}", "expected ${NAME}, ${NAME:-default} or ${file:path} — write $${ for a literal ${"),
        ("${UNSET:-${WORD}}", "a default is taken literally and cannot hold another ${…}"),
        ("${file:}", "${file:path} lacks its path"),
        ("${file:none}", "the file none cannot be read: No such file or directory"),
        ("${file:folder}", "the file folder cannot be read: Is a directory"),
        ("${file:link}", "the file link is a symbolic link — name the file itself"),
        ("${file:pipe}", "the file pipe is not a regular file"),
        ("${file:empty}", "the file empty is empty"),
        ("${file:large}", "the file large is larger than 64 KiB"),
        ("${file:latin}", "the file latin is not UTF-8 text"),
        ("${file:zero}", "the file zero holds a zero byte or half a character"),
    ],
)
def test_what_cannot_be_filled_in_is_said(tmp_path: Path, written: str, complaint: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to("real")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "large").write_bytes(b"x" * 65_537)
    (tmp_path / "latin").write_bytes(b"\xe9")
    (tmp_path / "zero").write_bytes(b"a\0b")
    assert expanded(tmp_path, f"a: 1\nkey: {written}\n")[2] == [f"c.yaml:2:6: key: {complaint}"]


def test_expand_file_strips_a_newline_and_warns_of_readers(tmp_path: Path) -> None:
    file = tmp_path / "sub" / "key"
    file.parent.mkdir()
    for content, becomes in (("s3cret", "s3cret"), (" a \n\n", " a \n"), ("${WORD}\r\n", "${WORD}")):
        file.write_bytes(content.encode())
        for mode, warnings in ((0o600, 0), (0o640, 1)):
            file.chmod(mode)
            document, expansion, _ = expanded(tmp_path, f"[ '${{file:sub/key}}', '${{file:{file}}}' ]")
            assert document.data == [becomes, becomes]
            warning = ((0,), "[0]: the file sub/key can be read by others", "chmod 600 it")
            assert expansion.warnings[:1] == [warning] * warnings


def test_a_number_can_come_from_the_environment_where_it_is_not_quoted(tmp_path: Path) -> None:
    for env, port in (({}, 8080), ({"PORT": "9"}, 9), ({"PORT": ""}, 8080)):
        assert loaded(tmp_path, f"server: {{ port: ${{PORT:-8080}} }}\n{AGENTS}", env).config.server.port == port
    assert lines(tmp_path, f"server: {{ port: '${{PORT:-8080}}' }}\n{AGENTS}") == [
        "config.yaml:1:17: server.port: expected a whole number, got a string — write it without quotes, in digits"
    ]


@pytest.mark.parametrize(
    "secret", ["12345678901234567890", "9" * 400, "1e5000000000000001", "true", "null", "0.10000000000000"]
)
def test_a_secret_that_looks_like_something_else_stays_the_text_it_is(tmp_path: Path, secret: str) -> None:
    config = loaded(tmp_path, f"providers: {{ anthropic: {{ apiKey: ${{KEY}} }} }}\n{AGENTS}", {"KEY": secret}).config
    assert config.providers["anthropic"].keys == (secret,)


def test_an_inherited_name_of_digits_stays_text_in_every_agent(tmp_path: Path) -> None:
    defaults = "{ systemPrompt: ${N}, historyTurns: ${N} }"
    text = f"agents: {{ defaults: {defaults}, list: [ {{ id: a }}, {{ id: b, name: ${{N}} }} ] }}\n"
    first, second = loaded(tmp_path, text, {"N": "7"}).config.agents.list
    assert (first.system_prompt, first.history_turns) == ("7", 7)
    assert (second.system_prompt, second.name) == ("7", "7")
