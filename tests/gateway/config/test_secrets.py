"""No secret ever shows: not in a problem, not in a warning, not in the report, however wrong the file is."""

from pathlib import Path

import pytest

from gateway.config.load import load
from gateway.config.problems import ConfigErrors
from gateway.config.report import report

CANARY = "canary-5f1d0c9b7a"
ENV = {name: f"{CANARY}-{name}" for name in ("APP_SECRET", "ENCRYPT_KEY", "TOKEN", "API_KEY", "ADMIN")}

SOUND = """\
server: { adminToken: '${ADMIN}' }
providers: { anthropic: { apiKey: '${API_KEY}', headers: { x-key: '${API_KEY}' } } }
channels:
  feishu:
    appId: cli_1
    appSecret: ${APP_SECRET}
    encryptKey: ${ENCRYPT_KEY}
    verificationToken: ${file:token}
    accounts: { b: { appId: cli_2, appSecret: INLINE, encryptKey: INLINE } }
agents: { list: [ { id: a, model: anthropic/x } ] }
"""

BROKEN = [
    # a secret where a word from a list, a number, a name or a list belongs
    "providers: { anthropic: { api: '${API_KEY}', timeoutSeconds: '${API_KEY}', baseUrl: '${API_KEY}' } }",
    "providers: { anthropic: { headers: { 'x-é': '${API_KEY}' } }, x: { api: '${API_KEY}' } }",
    "server: { port: '${ADMIN}', adminToken: INLINE-é, publicUrl: 'https://u:${ADMIN}@h', allowedHosts: [INLINE/] }",
    "database: { url: 'postgresql://u:${API_KEY}@h/d' }",
    "database: { url: 'INLINE' }",
    "logging: { level: '${API_KEY}' }",
    "channels: { feishu: { appId: INLINE, appSecret: [INLINE], encryptKey: { a: INLINE }, baseUrl: INLINE } }",
    "channels: { feishu: { appId: cli_1, appSecret: '${APP_SECRET}', dmPolicy: INLINE, allowFrom: [INLINE] } }",
    "channels: { feishu: { appId: '${API_KEY}', accounts: { b: { appId: '${API_KEY}' } } } }",
    # a secret that begins as YAML does not like it
    "providers: { anthropic: { apiKey: !INLINE } }",
    "providers: { anthropic: { apiKey: !INLINE x } }",
    "providers: { anthropic: { apiKey: !a!INLINE x } }",
    "providers: { anthropic: { apiKey: *INLINE } }",
    "providers: { anthropic: { apiKey: &INLINE x } }",
    "providers: { anthropic: { apiKey: @INLINE } }",
    "providers: { anthropic: { apiKey: 'INLINE } }",
    'providers: { anthropic: { apiKey: "INLINE\\q" } }',
    "providers:\n  anthropic:\n    apiKey: INLINE: x\n",
    "providers:\n  anthropic:\n    apiKey: INLINE\n    apiKey: INLINE2\n",
    "agents: { list: [ { id: '${API_KEY}', toolChoice: INLINE, model: INLINE } ] }",
    "agents: { list: [ { id: a, tools: { allow: ['${API_KEY}'], message: { targets: [INLINE] } } } ] }",
    "bindings: [ { agent: '${API_KEY}', match: { channel: '${API_KEY}', account: '${API_KEY}' } } ]\n"
    "agents: { list: [ { id: a } ] }",
]  # fmt: skip


@pytest.mark.parametrize("text", BROKEN)
def test_no_problem_shows_a_secret(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text.replace("INLINE", CANARY), encoding="utf-8")
    with pytest.raises(ConfigErrors) as raised:
        load(file, ENV)
    said = str(raised.value) + repr(raised.value.problems)
    assert raised.value.problems
    assert CANARY not in said


def test_neither_warnings_nor_report_show_a_secret(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{CANARY}-token\n")
    file = tmp_path / "config.yaml"
    file.write_text(SOUND.replace("INLINE", CANARY), encoding="utf-8")
    loaded = load(file, ENV)
    assert CANARY in loaded.config.providers["anthropic"].keys[0]
    assert len(loaded.warnings) > 2
    secret = loaded.config.model_copy(update={"providers": {}})
    assert CANARY not in "\n".join([*loaded.warnings, *report(loaded), repr(secret)])
