"""The command line in Chinese, by the config or the terminal's locale: the start, `check`, `doctor`, `status` and tables."""

import asyncio
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from channels.bilingual import Bilingual
from channels.condition import ChannelState
from gateway.cli import app
from gateway.config.load import load
from gateway.operate import contacts, schedules, skills
from gateway.operate.report import greeting
from gateway.operate.status import start_lines
from tests.empty_database import open_store
from tests.stories.process.test_process import ask

CONFIG = """\
server: { port: 1 }
database: { url: "sqlite:///%s/clawgate.db" }
channels:
  web: {}
  feishu: { appId: cli_a, appSecret: "${SECRET}", dmPolicy: open, mode: websocket }
agents:
  list: [{ id: assistant, model: openai/gpt-5.1, workspaceDir: %s/w }]
"""
ENV = {"LC_ALL": "", "LC_MESSAGES": "", "LANG": "", "SECRET": "a-secret-of-a-test", "OPENAI_API_KEY": ""}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG % (tmp_path, tmp_path), encoding="utf-8")
    path.chmod(0o600)
    return path


def printed(*arguments: str, **env: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, arguments, env=ENV | env)
    return result.exit_code, result.output


def test_the_start_greets_in_chinese(file: Path) -> None:
    assert greeting(load(file, ENV), link="LINK", language="zh")[1:] == [
        "  web        http://127.0.0.1:1/",
        "  feishu     应用 cli_a，长连接——请在开发者后台选择“使用长连接接收事件”",
        "             谁可以对话：所有人可以私聊；只在用 /listen 启用的群聊中回答",
        "  telegram   未启用：请在 channels.telegram 下设置 botToken（channels/telegram/README.md）",
        "  登录       http://127.0.0.1:1/#sign-in=LINK （60 分钟内有效，仅限一次）",
        "  智能体     assistant：openai/gpt-5.1",
        "  停止       Ctrl-C",
        f"警告：{file}:5:3: channels.feishu：dmPolicy: open 会让企业内的所有人都能给机器人发消息并使用它的工具"
        "——只允许你认识的人",
        "警告：providers.openai.apiKey：为空，因此 assistant 无法用 openai 回答——请设置环境变量 OPENAI_API_KEY",
    ]


def test_the_start_says_in_chinese_which_channels_are_in_touch() -> None:
    bad = ChannelState(
        state="refused", since=0.0, reason=Bilingual("wrong", "密钥不正确"), fix=Bilingual("mend", "请修正")
    )
    states = {("feishu", "default"): bad, ("telegram", "two"): ChannelState(state="ok", since=0.0)}
    assert [*start_lines(states, "zh")] == [
        "  feishu     ✗ 被拒绝：密钥不正确——请修正",
        "  telegram two ✓ 已连接",
    ]


def test_check_speaks_chinese(file: Path) -> None:
    code, output = printed("check", "--config", str(file), LANG="zh_CN.UTF-8")
    assert code == 0, output
    lines = output.splitlines()
    assert f"server：http://127.0.0.1:1，没有 publicUrl，数据库 {file.parent}/clawgate.db" in lines
    assert "provider openai：没有密钥——请设置环境变量 OPENAI_API_KEY" in lines
    assert lines[-2].startswith("警告：")
    assert lines[-1] == f"{file}：没有问题"


@pytest.mark.slow
async def test_doctor_speaks_chinese_and_its_json_does_not(file: Path) -> None:
    file.write_text(file.read_text(encoding="utf-8").replace("mode: websocket", "enabled: false"), encoding="utf-8")
    in_chinese = {"SECRET": "a-secret-of-a-test", "LANG": "zh_CN.UTF-8"}
    code, output = await ask("doctor", "--config", str(file), more=in_chinese)
    assert code == 1, output
    lines = output.splitlines()
    assert lines[0] == "错误 provider openai：没有密钥，因此无法回答——请设置环境变量 OPENAI_API_KEY"
    assert "正常 gateway：http://127.0.0.1:1 处没有网关在运行，因此不检查它的连接" in lines
    assert f"正常 folders：assistant 的工作目录：{file.parent}/w 可以写入" in lines
    warnings = [line for line in lines if line.startswith("警告 ")]
    assert len([line for line in warnings if not line.startswith("警告 prices")]) == 1, "old prices depend on the day"
    assert lines[-1].startswith(f"错误 1 项，警告 {len(warnings)} 项，正常 ")
    _, output = await ask("doctor", "--json", "--config", str(file), more=in_chinese)
    assert {it["check"] for it in json.loads(output)} >= {"config", "gateway", "provider openai", "folders"}
    assert not re.search("[一-鿿]", output.replace("使用长连接接收事件", ""))


def test_status_speaks_chinese_where_no_gateway_serves(file: Path) -> None:
    code, output = printed("status", "--config", str(file), LANG="zh_CN.UTF-8")
    assert code == 1
    assert output.startswith("✗ gateway   http://127.0.0.1:1 处没有网关在运行——启动它：")


@pytest.mark.parametrize(
    ("written", "env", "chinese"),
    [
        ("", {}, False),
        ("", {"LANG": "zh_CN.UTF-8"}, True),
        ("", {"LC_MESSAGES": "zh_TW"}, True),
        ("", {"LC_ALL": "C.UTF-8", "LANG": "zh_CN.UTF-8"}, False),
        ("language: zh\n", {"LC_ALL": "en_US.UTF-8"}, True),
        ("language: 'zh' # of the team\n", {}, True),
        ("language: en\n", {"LANG": "zh_CN.UTF-8"}, False),
        ("# language: en\n", {"LANG": "zh_CN.UTF-8"}, True),
    ],
)
def test_the_config_decides_the_language_then_the_locale(
    file: Path, written: str, env: dict[str, str], chinese: bool
) -> None:
    file.write_text(written + file.read_text(encoding="utf-8"), encoding="utf-8")
    code, output = printed("check", "--config", str(file), **env)
    assert code == 0, output
    assert ("没有问题" in output, ": ok" in output) == (chinese, not chinese)


@pytest.mark.parametrize("group", ["turns", "pairing", "approvals", "sessions", "schedules", "skills", "mcp"])
@pytest.mark.parametrize("language", ["zh_CN.UTF-8", "C.UTF-8"])
def test_a_group_without_a_command_shows_its_help_in_english(group: str, language: str) -> None:
    code, output = printed(group, LANG=language)
    assert code == 2
    assert output.strip().startswith("Usage:")
    assert "list" in output


def test_the_tables_of_the_command_line_are_chinese(file: Path) -> None:
    asyncio.run(open_store(load(file, ENV).config.database).close())
    tables = {
        ("usage",): "智能体  轮次  输入 token  输出 token  费用",
        ("turns", "list"): "0 轮",
        ("schedules", "list"): "0 个定时",
        ("skills", "list"): "0 个技能，使用其中 0 个",
        ("pairing", "list"): "等待批准 0 人，已批准 0 人",
    }
    for command, line in tables.items():
        assert line in printed(*command, "--config", str(file), LANG="zh_CN.UTF-8")[1], command
    contact = {"name": "feishu:ou_1", "displayName": "王磊", "at": "2026", "approvedBy": None, "owner": False}
    schedule = {"id": "R1", "due": None, "state": "paused", "why": "gone", "to": "chat", "at": "9:00", "does": "say"}
    assert "  等待批准：" in contacts.line(contact, "zh")
    assert contacts.line(contact | {"approvedBy": "feishu:ou_2", "approvedByName": "李娜"}, "zh").endswith(" 批准")
    shown = schedules.line(schedule | {"title": "喝水", "runs": 3, "skips": 1}, "zh")
    assert shown == "R1  已暂停（无法再联系该聊天）  chat  9:00  发送：喝水，已运行 3 次，跳过 1 次"
    assert skills.line({"name": "pdf", "state": "changed"}, "zh") == "pdf  有变化"
