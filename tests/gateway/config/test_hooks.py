"""Hooks in a config: what `check` says of each slip, and what a template gives."""

from pathlib import Path

import pytest

from gateway.config.hooks import Event, Template, template
from tests.gateway.config.writing import lines

AGENT = "agents: { list: [ { id: a, model: demo/echo } ] }\nchannels: { web: { enabled: true } }\n"
GOOD = {"secret": "0123456789abcdef", "verify": "hmac", "to": "web:c1", "say": "x"}
EVENT = Event(
    body={"a": {"b": 1.5, "c": None, "d": [{"e": "x"}, True]}, "t": "{{ body.a.b }}"}, headers={"x-ci-run": "7"}
)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, []),
        ({"secret": ""}, ["hooks.ci.secret: missing", "openssl rand -hex 32"]),
        ({"secret": "short"}, ["hooks.ci.secret: too short"]),
        ({"to": "slack:C1"}, ["hooks.ci.to: no channel 'slack' is configured; there is: web"]),
        ({"to": "web"}, ["hooks.ci.to: expected channel:chat"]),
        ({"verify": "md5"}, ["hooks.ci.verify: expected hmac or github or token"]),
        ({"task": "y"}, ["hooks.ci: expected either `say`"]),
        ({"say": ""}, ["hooks.ci.say: is empty"]),
        ({"agent": "a"}, ["hooks.ci.agent: goes with `task`"]),
        ({"say": "{{ body.x | upper }}"}, ["expected {{ body.name }} or {{ headers.name }}"]),
        ({"say": "{{ env.HOME }}"}, ["expected {{ body.name }} or {{ headers.name }}"]),
        ({"say": "{{ headers.Authorization }}"}, ["this header is a secret"]),
        ({"say": "{{ body.x"}, ["a {{ without its }}"]),
        ({"rate": "often"}, ["hooks.ci.rate: expected messages/time"]),
    ],
)
def test_each_slip_is_one_line_with_its_place(tmp_path: Path, keys: dict[str, str], words: list[str]) -> None:
    hook = ", ".join(f'{key}: "{value}"' for key, value in (GOOD | keys).items())
    found = lines(tmp_path, f"{AGENT}hooks: {{ ci: {{ {hook} }} }}")
    assert len(found) == bool(words), found
    assert all(it in found[0] for it in words)


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{{ body.a.b }} {{body.a.d.0.e}} {{ body.a.d.1 }}", "1.5 x true"),
        ("<{{ body.a.c }}{{ body.no }}{{ body.a.d.9 }}{{ body.a.b.c }}{{ headers.no }}>", "<>"),
        ("{{ headers.X-CI-Run }}", "7"),
        ("{{ body.a.d }}", '[{"e":"x"},true]'),
        ("{{ body.t }}", "{{ body.a.b }}"),
        ("a { b } }} c", "a { b } }} c"),
    ],
)
def test_values_are_filled_in_and_what_is_missing_is_empty(text: str, filled: str) -> None:
    assert Template(template(text)).filled(EVENT, lambda value, where: value) == filled


def test_a_place_knows_whether_it_is_in_code() -> None:
    text = "{{ body.t }} `{{ body.t }}`\n```\n{{ body.t }}\n```\n{{ body.t }}"
    assert Template(text).filled(EVENT, lambda value, where: where) == (
        "text `line of code`\n```\nblock of code\n```\ntext"
    )
