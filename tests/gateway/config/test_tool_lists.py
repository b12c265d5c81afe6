"""Names in tool lists, wherever they stand: what there is not is said, with what was meant."""

from pathlib import Path

import pytest

from tests.gateway.config.writing import lines

AGENTS = "agents: { list: [ { id: a, model: demo/guide } ] }"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tools: { deny: [exce] }", 'tools.deny[0]: unknown tool "exce" — did you mean "exec"?'),
        ("tools: { allow: ['group:file'] }", 'tools.allow[0]: unknown tool "group:file" — did you mean "group:files"?'),
        ("tools: { ownerOnly: [wrte] }", 'tools.ownerOnly[0]: unknown tool "wrte" — did you mean "write"?'),
        ("tools: { profile: codin }", "tools.profile: "),
        (
            "tools: { senders: { 'web:local': { deny: [lss] } } }",
            'tools.senders["web:local"].deny[0]: unknown tool "lss"',
        ),
        ("tools: { senders: { 'feshu:ou_1': {} } }", 'unknown channel "feshu" — did you mean "feishu"?'),
        ("tools: { senders: { ou_1: {} } }", "tools.senders"),
        ("channels: { web: { tools: { allow: [red] } } }", 'channels.web.tools.allow[0]: unknown tool "red"'),
        ("channels: { telegram: { tools: { deny: [lss] } } }", 'channels.telegram.tools.deny[0]: unknown tool "lss"'),
        (
            "channels: { feishu: { chats: { oc_1: { tools: { deny: [lss] } } } } }",
            'channels.feishu.chats.oc_1.tools.deny[0]: unknown tool "lss"',
        ),
        (
            "channels: { feishu: { accounts: { b: { tools: { allow: [lss] } } } } }",
            'channels.feishu.accounts.b.tools.allow[0]: unknown tool "lss"',
        ),
    ],
)
def test_a_name_that_is_none_is_one_line(tmp_path: Path, text: str, problem: str) -> None:
    (line,) = lines(tmp_path, f"{AGENTS}\n{text}\n")
    assert problem in line


@pytest.mark.parametrize("known", ["group:files", "group:runtime", "group:web", "group:memory", "group:messaging", "*"])
def test_a_group_may_stand_wherever_a_tool_may(tmp_path: Path, known: str) -> None:
    text = f"tools: {{ allow: ['*', '{known}'], deny: ['{known}'], ownerOnly: ['{known}'] }}"
    assert lines(tmp_path, f"{AGENTS}\n{text}\n") == []
