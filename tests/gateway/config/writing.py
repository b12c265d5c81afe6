"""What the config tests share: write a file, load it, and read back what a person would see."""

import re
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

from gateway.config.load import Loaded, load
from gateway.config.problems import ConfigErrors, Findings
from gateway.config.yaml import Document, parse


def loaded(folder: Path, text: str, env: Mapping[str, str] | None = None) -> Loaded:
    """The config of a file with this text; fails with the problems where there are any."""
    file = folder / "config.yaml"
    file.write_text(dedent(text), encoding="utf-8")
    return load(file, env or {})


def lines(folder: Path, text: str | bytes, env: Mapping[str, str] | None = None) -> list[str]:
    """The problems of a file with this text, as `check` prints them, without the folder."""
    file = folder / "config.yaml"
    file.write_bytes(text if isinstance(text, bytes) else dedent(text).encode())
    try:
        load(file, env or {})
    except ConfigErrors as errors:
        return [str(problem).replace(f"{folder}/", "") for problem in errors.problems]
    return []


def parsed(text: str | bytes) -> tuple[Document | None, list[str]]:
    """What the YAML layer alone makes of a text, and its complaints."""
    findings = Findings("config.yaml")
    document = parse(text if isinstance(text, bytes) else text.encode(), findings)
    return document, [str(problem) for problem in findings.problems]


def data_of(text: str | bytes) -> Any:
    """What a text without a fault says."""
    document, complaints = parsed(text)
    assert complaints == []
    assert document is not None
    return document.data


def cases(table: str, words: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """Of a table of YAML texts, each with its expectation below it on lines that begin with `> `: text and expectation.
    `words` stand for what repeats."""
    for word, meaning in (words or {}).items():
        table = re.sub(rf"\b{word}\b", meaning.replace("\\", r"\\"), table)
    blocks = re.findall(r"((?:(?!> ).*\n)+)((?:> .*\n)+)", table.strip("\n") + "\n")
    return [(text, expected.removeprefix("> ").rstrip().replace("\n> ", " ")) for text, expected in blocks]
