"""The rehearsal itself: both platforms up, the shipped config pointed at them, and a gateway that serves it.

Keys of models come from the environment and from `.env`; every other setting of the machine stays out, above all the
tokens of real bots and the address of a real database.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dotenv import dotenv_values

from agents.providers.config import WELL_KNOWN
from tests.loopback import serve_on_loopback
from tests.rehearsal.feishu import APP_ID, APP_SECRET, OnFeishuPhones
from tests.rehearsal.program import ROOT, Program
from tests.rehearsal.telegram import OnTelegramPhones

MODELS = frozenset(
    {variable for vendor in WELL_KNOWN for variable in vendor.variables} | {"CLAWGATE_MODEL", "ANTHROPIC_BASE_URL"}
)
FOREIGN = re.compile(r"CLAWGATE_|FEISHU_|TELEGRAM_")


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    telegram: OnTelegramPhones
    feishu: OnFeishuPhones
    program: Program

    @property
    def platforms(self) -> tuple[OnTelegramPhones, OnFeishuPhones]:
        return self.telegram, self.feishu


def environment(given: Mapping[str, str], token: str) -> dict[str, str]:
    """What the gateway gets: this machine's environment without its bots, and ours in their place."""
    kept = {name: value for name, value in given.items() if not FOREIGN.match(name) or name in MODELS}
    ours = {"FEISHU_APP_ID": APP_ID, "FEISHU_APP_SECRET": APP_SECRET, "TELEGRAM_BOT_TOKEN": token}
    return kept | ours | {"CLAWGATE_LOG_FORMAT": "console", "PYTHONUNBUFFERED": "1"}


def keys(*files: Path) -> dict[str, str]:
    """The keys of models that `.env` files have."""
    found = {name: value for file in files for name, value in dotenv_values(file).items()}
    return {name: value for name, value in found.items() if name in MODELS and value}


def config_text(shipped: str, *, telegram_url: str, feishu_url: str) -> str:
    """The shipped config with both platforms at these addresses."""
    places = {
        "${FEISHU_BASE_URL:-https://open.feishu.cn}": feishu_url,
        "  telegram:  ": f'  telegram:\n    apiRoot: "{telegram_url}"\n    #',
    }
    for written, now in places.items():
        assert shipped.count(written) == 1, f"the shipped config has {written!r} {shipped.count(written)} times"
        shipped = shipped.replace(written, now)
    return shipped


@asynccontextmanager
async def stage(folder: Path, env: Mapping[str, str], *, port: int = 0) -> AsyncIterator[Stage]:
    """Everything up, in a folder; at the end nothing of it runs."""
    telegram, feishu = OnTelegramPhones(), OnFeishuPhones()
    async with AsyncExitStack() as up:
        telegram_url = await up.enter_async_context(serve_on_loopback(telegram.emulator.app))
        feishu_url = await up.enter_async_context(serve_on_loopback(feishu.emulator.app))
        shipped = (ROOT / "config.yaml").read_text(encoding="utf-8")
        config = folder / "config.yaml"
        config.write_text(config_text(shipped, telegram_url=telegram_url, feishu_url=feishu_url), encoding="utf-8")
        program = Program(config, environment(env, telegram.emulator.token), port=port)
        pushing = asyncio.create_task(feishu.run())
        up.push_async_callback(_cancelled, pushing)
        up.push_async_callback(program.close)
        await program.start()
        yield Stage(telegram=telegram, feishu=feishu, program=program)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def machine() -> dict[str, str]:
    """This machine's environment, and the keys of the `.env` of a clone."""
    return keys(ROOT / ".env", ROOT / "bot" / ".env") | dict(os.environ)
