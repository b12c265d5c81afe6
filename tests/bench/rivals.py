"""Other chat gateways as `compare` runs them: what is installed, what is configured, and the command that serves."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BOT_ID = 700_000_000
TOKEN = f"{BOT_ID}:{'A' * 35}"
KEY = "sk-test-" + "0" * 40
MODEL = "test-model"
PROMPT = "You are a helpful assistant in a team chat. Answer in the language you are addressed in."


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """Where the emulated Telegram and model are, and the folders of a bot."""

    url: str
    folder: Path
    packages: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Rival:
    """One gateway. `requirements` are pip's, or npm's if `npm`."""

    name: str
    requirements: tuple[str, ...]
    prepare: Callable[[Surroundings], None]
    arguments: tuple[str, ...]
    environment: Callable[[Surroundings], dict[str, str]]
    npm: bool = False

    def install(self, packages: Path) -> None:
        """Install the packages once, into a folder of this gateway."""
        if not self.requirements or (packages / "installed").exists():
            return
        packages.mkdir(parents=True, exist_ok=True)
        if self.npm:
            (packages / "package.json").write_text("{}")
            path = {"PATH": f"{packages / 'node_modules/.bin'}:{os.environ['PATH']}"}
            for requirement in self.requirements:  # node itself comes first
                command = ["npm", "install", "--no-audit", "--no-fund", requirement]
                subprocess.run(command, cwd=packages, env={**os.environ, **path}, check=True)
        else:
            subprocess.run([sys.executable, "-m", "venv", packages], check=True)
            subprocess.run([packages / "bin/pip", "install", "--quiet", *self.requirements], check=True)
        (packages / "installed").touch()

    def version(self) -> str:
        return self.requirements[-1].rpartition("==" if not self.npm else "@")[2] if self.requirements else "this tree"

    def command(self, around: Surroundings) -> tuple[list[str], dict[str, str]]:
        """Return the command that serves, and its environment: nothing of ours but PATH and the certificates."""
        programs = around.packages / ("node_modules/.bin" if self.npm else "bin")
        own = {
            "HOME": str(around.folder),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "NO_PROXY": "127.0.0.1",
        }
        first = sys.executable if not self.requirements else str(programs / self.arguments[0])
        return [first, *self.arguments[1:]], own | self.environment(around)


def _write_json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1))


def _no_environment(around: Surroundings) -> dict[str, str]:
    return {}


def _clawgate(around: Surroundings) -> None:
    config = {
        "server": {"port": 18_790},
        "providers": {"local": {"api": "openai-chat", "baseUrl": f"{around.url}/v1", "apiKey": KEY}},
        "channels": {
            "web": {"enabled": False},
            "telegram": {"botToken": TOKEN, "apiRoot": around.url, "dmPolicy": "open"},
        },
        "agents": {
            "defaults": {
                "model": f"local/{MODEL}",
                "systemPrompt": PROMPT,
                "tools": {"allow": ["read", "write", "edit", "ls", "grep", "find"]},
            },
            "list": [{"id": "assistant"}],
        },
    }
    _write_json(around.folder / "config.yaml", config)  # JSON is YAML


def _nanobot(around: Surroundings) -> None:
    config = {
        "agents": {"defaults": {"model": MODEL, "provider": "custom", "workspace": str(around.folder / "workspace")}},
        "providers": {"custom": {"apiKey": KEY, "apiBase": f"{around.url}/v1"}},
        "channels": {"telegram": {"enabled": True, "token": TOKEN, "allowFrom": ["*"]}},
        "gateway": {"port": 0},
    }
    _write_json(around.folder / ".nanobot" / "config.json", config)
    _point_the_telegram_library_here(around)


def _point_the_telegram_library_here(around: Surroundings) -> None:
    """nanobot has no key for the address of Telegram, so its library is told when the interpreter starts."""
    (around.folder / "site").mkdir()
    (around.folder / "site" / "sitecustomize.py").write_text(
        "import telegram\n"
        "import telegram.ext._applicationbuilder as builder\n"
        "before = builder.ApplicationBuilder.__init__\n"
        "def patched(self):\n"
        "    before(self)\n"
        f"    self._base_url = {around.url + '/bot'!r}\n"
        f"    self._base_file_url = {around.url + '/file/bot'!r}\n"
        "builder.ApplicationBuilder.__init__ = patched\n"
    )


def _hermes(around: Surroundings) -> None:
    config = {
        "model": {"default": MODEL, "provider": "custom", "base_url": f"{around.url}/v1", "api_key": KEY},
        "platforms": {
            "telegram": {
                "enabled": True,
                "token": TOKEN,
                "extra": {"base_url": f"{around.url}/bot", "base_file_url": f"{around.url}/file/bot"},
            }
        },
    }
    _write_json(around.folder / ".hermes" / "config.yaml", config)


def _hermes_environment(around: Surroundings) -> dict[str, str]:
    return {
        "HERMES_HOME": str(around.folder / ".hermes"),
        "TELEGRAM_BOT_TOKEN": TOKEN,
        "GATEWAY_ALLOW_ALL_USERS": "true",
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": f"{around.url}/v1",
    }


def _astrbot(around: Surroundings) -> None:
    (around.folder / ".astrbot").touch()
    config = {
        "platform": [
            {
                "id": "telegram",
                "type": "telegram",
                "enable": True,
                "telegram_token": TOKEN,
                "start_message": "Hello",
                "telegram_api_base_url": f"{around.url}/bot",
                "telegram_file_base_url": f"{around.url}/file/bot",
                "telegram_command_register": False,
                "telegram_command_auto_refresh": False,
                "telegram_command_register_interval": 300,
            }
        ],
        "provider": [
            {
                "id": "local",
                "provider": "openai",
                "type": "openai_chat_completion",
                "provider_type": "chat_completion",
                "enable": True,
                "key": [KEY],
                "api_base": f"{around.url}/v1",
                "timeout": 120,
                "model_config": {"model": MODEL},
                "model": MODEL,
            }
        ],
        "provider_settings": {"enable": True, "default_provider_id": "local"},
        "dashboard": {"enable": False, "port": 0},
    }
    _write_json(around.folder / "data" / "cmd_config.json", config)
    for name in ("config", "plugins", "temp", "dist/assets"):
        (around.folder / "data" / name).mkdir(parents=True, exist_ok=True)
    (around.folder / "data/dist/assets/version").write_text("v4.14.6")  # else it asks whether to download its dashboard


def _openclaw(around: Surroundings) -> None:
    config = {
        "gateway": {"mode": "local", "port": 18_789, "bind": "loopback", "auth": {"mode": "token", "token": KEY}},
        "models": {
            "mode": "merge",
            "providers": {
                "local": {
                    "baseUrl": f"{around.url}/v1",
                    "apiKey": KEY,
                    "api": "openai-completions",
                    "models": [{"id": MODEL, "name": MODEL, "contextWindow": 128_000, "maxTokens": 8_192}],
                }
            },
        },
        "agents": {"defaults": {"model": {"primary": f"local/{MODEL}"}, "workspace": str(around.folder / "workspace")}},
        "session": {"dmScope": "per-channel-peer"},  # else all direct chats share one conversation and wait in one line
        "channels": {
            "telegram": {
                "enabled": True,
                "botToken": TOKEN,
                "apiRoot": around.url,
                "dmPolicy": "open",
                "allowFrom": ["*"],
            }
        },
    }
    _write_json(around.folder / ".openclaw" / "openclaw.json", config)


RIVALS = {
    rival.name: rival
    for rival in (
        Rival(
            name="clawgate",
            requirements=(),
            prepare=_clawgate,
            arguments=("python", "-m", "gateway", "serve", "--config", "config.yaml"),
            environment=lambda around: {"PYTHONPATH": str(ROOT)},
        ),
        Rival(
            name="nanobot",
            requirements=("python-telegram-bot[webhooks]", "nanobot-ai==0.3.5"),
            prepare=_nanobot,
            arguments=("nanobot", "gateway", "--foreground"),
            environment=lambda around: {"PYTHONPATH": str(around.folder / "site")},
        ),
        Rival(
            name="hermes-agent",
            requirements=("hermes-agent[messaging]==0.19.0",),
            prepare=_hermes,
            arguments=("hermes", "gateway", "run"),
            environment=_hermes_environment,
        ),
        Rival(
            name="astrbot",
            requirements=("astrbot==4.14.6",),
            prepare=_astrbot,
            arguments=("astrbot", "run"),
            environment=_no_environment,
        ),
        Rival(
            name="openclaw",
            requirements=("node@26.10.0", "openclaw@2026.9.6"),
            npm=True,
            prepare=_openclaw,
            arguments=("openclaw", "gateway", "run"),
            environment=_no_environment,
        ),
    )
}
