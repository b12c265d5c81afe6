"""No secret ever shows: not in a problem, not in a warning, not in the report, however wrong the file is."""

from pathlib import Path

import pytest

from gateway.config.load import load
from gateway.config.problems import ConfigErrors
from gateway.operate.report import greeting, report
from gateway.operate.report import lines as printed
from tests.gateway.config.writing import cases, lines, loaded

AGENT = "agents: { list: [ { id: a } ] }\n"
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
    "channels: { feishu: { appId: INLINE, appSecret: [INLINE], encryptKey: { a: INLINE }, baseUrl: INLINE } }",
    "channels: { feishu: { appId: cli_1, appSecret: '${APP_SECRET}', dmPolicy: INLINE, allowFrom: [INLINE] } }",
    "channels: { feishu: { appId: '${API_KEY}', accounts: { b: { appId: '${API_KEY}' } } } }",
    # a secret that begins as YAML does not like it
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
    "bindings: [ { agent: '${API_KEY}', match: { channel: '${API_KEY}', account: '${API_KEY}' } } ]\n"
    "agents: { list: [ { id: a } ] }",
]  # fmt: skip


@pytest.mark.parametrize("text", BROKEN)
def test_no_problem_shows_a_secret(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text.replace("INLINE", CANARY), encoding="utf-8")
    with pytest.raises(ConfigErrors) as raised:
        load(file, ENV)
    shown = str(raised.value) + repr(raised.value.problems)
    assert raised.value.problems
    assert CANARY not in shown


def test_neither_warnings_nor_report_show_a_secret(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{CANARY}-token\n")
    file = tmp_path / "config.yaml"
    file.write_text(SOUND.replace("INLINE", CANARY), encoding="utf-8")
    loaded = load(file, ENV)
    assert CANARY in loaded.config.providers["anthropic"].keys[0]
    assert len(loaded.warnings) > 2
    secret = loaded.config.model_copy(update={"providers": {}})
    assert CANARY not in "\n".join([*map(str, loaded.warnings), *printed(report(loaded)), repr(secret)])


PASTED = {
    "anthropic": "sk-ant-api03-Canary91827Canary91827",
    "telegram": "7000000001:AACanary91827Canary91827Canary91827x",
    "feishu": "c4N91aR827yQ5w3E1r7T9y2U4i6O8p0A",
    "zhipu": "0123a5b6c7d8e9f0a1b2c3d4e5f60718.Canary91827Canar",
    "aws": "wJalrXUtnFEMI+K7MDENG+bPxRfiCYCanary91827",
}
MISPLACED = """
agents: { list: [ { id: a } ] }
SECRET: x
> 2:1: ***: unknown key
agents:
  list:
    - id: a
      SECRET: x
> 4:7: agents.list[0].***: unknown key
export KEY=SECRET: x
> 1:1:
channels: { feishu: { accounts: { 'SECRET': {} } } }
> 1:35: channels.feishu.accounts.***: expected lower-case letters
'SECRET': 1
'SECRET': 2
> 1:1: ***: unknown key
providers: { mine: { api: 'SECRET' } }
> 1:27: providers.mine.api: unknown api
providers: { mine: { api: openai-chat, dialect: 'SECRET' } }
> 1:49: providers.mine.dialect: unknown dialect
agents: { list: [ { id: a, tools: { allow: ['SECRET'] } } ] }
> 1:45: agents.list[0].tools.allow[0]: unknown tool
agents: { list: [ { id: a, model: 'SECRET/x' } ] }
> 1:35: agents.list[0].model:
agents: { list: [ { id: a } ] }
bindings: [ { agent: a, match: { channel: 'SECRET' } } ]
> 2:43: bindings[0].match.channel: unknown channel
agents: { list: [ { id: a, tools: { message: { targets: ['feishu:SECRET:x'] } } } ] }
> 1:58: agents.list[0].tools.message.targets[0]:
providers: { anthropic: { headers: { 'SECRET ': x } } }
> 1:36: providers.anthropic.headers:
agents:
  list: a
  SECRET
  x: y: z
> 3:3:
agents: { list: [ { id: a } ] }
providers: { 'SECRET': { api: openai-chat, baseUrl: 'http://h/v1' } }
models: {}
server: { portt: 1 }
bindings: [ { agent: a, match: { account: y } } ]
> 4:11: server.portt: unknown key
"""


@pytest.mark.parametrize("secret", PASTED.values(), ids=PASTED)
@pytest.mark.parametrize(("text", "start"), cases(MISPLACED))
def test_a_secret_in_a_wrong_place_is_struck_out_and_its_place_stays(
    tmp_path: Path, text: str, start: str, secret: str
) -> None:
    found = lines(tmp_path, (text if "agents:" in text else text + AGENT).replace("SECRET", secret))
    assert [line for line in found if line.removeprefix("config.yaml:").startswith(start)] != []
    shown = "\n".join(found)
    assert not any(secret[at : at + 8] in shown for at in range(len(secret) - 7))


def test_secret_equal_to_a_name_is_masked_in_warnings(tmp_path: Path) -> None:
    for secret in PASTED.values():
        text = f"providers: {{ '{secret}': {{ api: anthropic-messages }} }}\n"
        text += f"agents: {{ list: [ {{ id: a, model: '{secret}/x' }} ] }}\n"
        read = loaded(tmp_path, text)
        shown = "\n".join([*map(str, read.warnings), *printed(report(read)), *greeting(read)])
        assert "***" in shown
        assert secret[:12] not in shown
