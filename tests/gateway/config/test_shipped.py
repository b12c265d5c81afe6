"""The shipped config.yaml, and the pages made from the models: they work as they are, and they are up to date."""

import json
import re
from pathlib import Path
from typing import Any

from agents.providers.config import WELL_KNOWN
from gateway.config.load import load
from gateway.config.reader import fields_of
from gateway.config.reference import all_models, documentation, main, schema
from gateway.config.root import Config
from tests.gateway.config.writing import loaded

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = ROOT / "config.yaml"
EVERYTHING = {
    "CLAWGATE_PORT": "9000",
    "FEISHU_BASE_URL": "https://open.larksuite.com",
    "CLAWGATE_PUBLIC_URL": "https://bot.example.com",
    "CLAWGATE_ADMIN_TOKEN": "0123456789012345",
    "CLAWGATE_MODEL": "qwen/qwen3-max",
    "CLAWGATE_LOG_FORMAT": "console",
    "TELEGRAM_BOT_TOKEN": "7000000001:AAExampleExampleExampleExampleExamp1",
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
    "CLAWGATE_DATABASE_URL": "postgresql://me:pw@db/clawgate",
    "FEISHU_APP_ID": "cli_1",
    "FEISHU_APP_SECRET": "1234",
    "FEISHU_ENCRYPT_KEY": "true",
    "FEISHU_VERIFICATION_TOKEN": "5.0",
}


KEYS = {variable for vendor in WELL_KNOWN if vendor.default_model for variable in vendor.variables[:1]}


def test_the_shipped_config_tells_every_variable_that_is_enough_by_itself() -> None:
    mentioned = re.findall(r"[A-Z]+_API_KEY", SHIPPED.read_text(encoding="utf-8"))
    assert mentioned[:-1] == [v for it in WELL_KNOWN if it.default_model for v in it.variables[:1]]


def test_the_shipped_config_takes_every_name_it_mentions() -> None:
    mentioned = set(re.findall(r"\$\{([A-Z_]+)[:}]", SHIPPED.read_text(encoding="utf-8"))) - {"NAME"}
    assert mentioned == set(EVERYTHING)
    config = load(SHIPPED, dict.fromkeys(KEYS, "sk-1") | EVERYTHING).config
    assert config.database.path is None
    feishu = config.channels.feishu
    assert feishu is not None
    secrets = (feishu.app_secret, feishu.encrypt_key, feishu.verification_token, config.server.admin_token)
    assert [secret.get_secret_value() for secret in secrets] == ["1234", "true", "5.0", "0123456789012345"]
    assert (config.server.port, config.server.public_url) == (9000, "https://bot.example.com")
    assert config.agents.list[0].model == ("qwen/qwen3-max",)
    assert config.providers.keys() == {"anthropic", "qwen"}
    assert config.tools.exec.mode == "ask"
    assert config.provider("anthropic").base_url == "http://127.0.0.1:1"


def test_the_commented_examples_work_once_the_hash_is_taken_away(tmp_path: Path) -> None:
    text = re.sub(r"^( *)# (- |  |tools:|skills:)", r"\1\2", SHIPPED.read_text(encoding="utf-8"), flags=re.M)
    text = re.sub(r"^ *(make run|clawgate) .*\n", "", text, flags=re.M)
    config = loaded(tmp_path, text).config
    assert [agent.id for agent in config.agents.list] == ["assistant", "coder"]
    assert config.agents.list[1].name == "代码助手"
    assert [binding.agent for binding in config.bindings] == ["coder", "coder"]
    assert config.tools.exec.mode == "allow"
    assert config.skills.directories == (f"{tmp_path}/my-skills",)


def test_every_key_has_its_sentence() -> None:
    missing = [
        f"{model.__name__}.{name}"
        for model in all_models(Config)
        for name in fields_of(model)
        if name not in documentation(model)
    ]
    assert missing == []


def test_the_schema_refers_only_to_what_it_defines() -> None:
    made: dict[str, Any] = schema()
    assert set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(made))) <= set(made["$defs"])


def test_the_reference_pages_are_those_of_the_models(tmp_path: Path) -> None:
    main(tmp_path)
    for name in ("config.md", "config.schema.json"):
        written, shipped = [(folder / name).read_text(encoding="utf-8") for folder in (tmp_path, ROOT / "docs")]
        assert written == shipped, "python -m gateway.config.reference docs"
