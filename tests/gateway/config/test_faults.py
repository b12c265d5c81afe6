"""The usual slips in a YAML file: told where they were made, which is not where a parser notices them."""

import pytest

from gateway.config.problems import Findings
from gateway.config.yaml import parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("server:\n  host 127.0.0.1\n  port: 1\n", "2:3: a colon is missing behind the key"),
        ("server:\n  host 127.0.0.1 # mine: here\n\n  # port\n  port: 1\n", "2:3: a colon is missing behind the key"),
        ("server:\n  host：127.0.0.1\n  port: 1\n", "2:3: a full-width colon (：) — write a plain one"),
        ("server:\n  host: a b: c\n", "2:12: a colon is not expected here"),
        ('server:\n  host: "127.0.0.1\n  port: 1\nx:\n  y: "z"\n', "2:9: a quotation mark opens here and never closes"),
        ("server:\n  host: '127.0.0.1\n  port: 1\nx:\n  y: 'z'\n", "2:9: a quotation mark opens here and never closes"),
        ("list:\n  - id: a\n   name: b\n    model: c\n", "3:4: this does not fit what stands above"),
        ("a:\n  - b\n c: 1\n", "3:2: this does not fit what stands above"),
        ("list:\n  - { a: x, b: { c: y }\n  - { a: z }\n", "2:5: what opens here is not closed with } before line 3"),
        ("a: [1, 2\nb: 3\n", "1:4: what opens here is not closed with ] before line 2"),
        ("a:\n\tb: 1\n", "2:1: a tab cannot indent YAML"),
        ("list:\n  - id: a\n  -id: b\n", "3:3: a space is missing behind the dash"),
        ("a: { b: x， c: y }\n", "1:10: full-width punctuation — write ， as it is in English"),
        ("a: ｛ b: x ｝\n", "1:4: full-width punctuation — write ｛ as it is in English"),
        ("a: { b: “x: y” }\n", "1:9: full-width punctuation — write “ as it is in English"),
        ("a:\n  b\n  c: 1\n", "3:4: a colon is not expected here"),
        ("a:\n  b: 1\n  c\n  d: 1\n", "3:3: a colon is missing behind the key"),
    ],
)
def test_each_slip_is_told_where_it_was_made_with_its_fix(text: str, expected: str) -> None:
    findings = Findings("config.yaml")
    assert parse(text.encode(), findings) is None
    (problem,) = findings.problems
    assert str(problem).removeprefix("config.yaml:").startswith(expected)
