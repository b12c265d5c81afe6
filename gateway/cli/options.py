"""The commands' common parts: options, the config, and how they end. Here alone the environment is read.

In a clone of the repository git tracks config.yaml, so what is the bot's own is in the folder `bot`, which git ignores: no
edit of the config stops a `git pull`. A clone that was served before there was such a folder keeps what it has, until its
files are moved.
"""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from channels.bilingual import Bilingual
from gateway.observe.terminal import print_text
from gateway.program import OperatorError

if TYPE_CHECKING:
    from agents.language import Language
    from gateway.config.load import Loaded
    from gateway.config.serving import InForce


def of_this_folder(context: typer.Context, param: typer.CallbackParam, config: Path) -> Path:
    """Return the config that is named; else that of this folder, which is `bot/config.yaml` in a clone."""
    source = context.get_parameter_source(param.name or "")
    if source is not None and source.name != "DEFAULT":
        return config
    return config_to_write() if context.info_name == "init" else config_to_read()


ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", help="The config file.", show_default=True, callback=of_this_folder)
]
_LANGUAGE = re.compile(r"""^language:[ ]*["']?(en|zh)\b""", re.MULTILINE)
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Feedback: TypeAlias = Literal["good", "bad"]
"""A rating of answers to filter by."""


class Platform(StrEnum):
    FEISHU = "feishu"
    TELEGRAM = "telegram"


SECRETS: dict[Platform, tuple[str, ...]] = {
    Platform.FEISHU: ("FEISHU_APP_ID", "FEISHU_APP_SECRET"),
    Platform.TELEGRAM: ("TELEGRAM_BOT_TOKEN",),
}


class Exposed(OperatorError):
    """The page would be open to the network."""

    code = 2


def load_file(path: Path) -> "Loaded":
    """Return the config as its file says, for commands that begin with it or judge it. Raises ConfigErrors."""
    from gateway.config.load import load

    return load(path, environment())


def load(path: Path, *, exact: bool = False, stored: bool = False) -> "Loaded":
    """Return the current config and warn of the file's errors. Raises ConfigErrors if it is unknown. `exact`: no
    part may be guessed, because the command deletes or writes what the config names. `stored`: the command only
    needs the server and the database, which suffice if no gateway is running."""
    found = load_in_force(path)
    if found.loaded is None or (found.problems and not _will_do(found, exact=exact, stored=stored)):
        from gateway.config.problems import ConfigErrors

        raise ConfigErrors(found.problems)
    if found.refusal:
        print_text(f"warning: {found.refusal}", err=True)
    return found.loaded


def load_in_force(path: Path) -> "InForce":
    from gateway.config.serving import in_force

    return in_force(path, environment())


def _will_do(found: "InForce", *, exact: bool, stored: bool) -> bool:
    if found.serving is None:
        return stored and found.knows_database
    return found.is_exact or not exact


def environment() -> Mapping[str, str]:
    """Return a copy of the current environment. Undecodable bytes are replaced, so every value is text."""
    return {name: value.encode(errors="surrogateescape").decode(errors="replace") for name, value in os.environ.items()}


def terminal_language() -> "Language":
    """Chinese if the terminal's locale is."""
    env = environment()
    locale = next(filter(None, map(env.get, ("LC_ALL", "LC_MESSAGES", "LANG"))), "")
    return "zh" if locale.lower().startswith("zh") else "en"


def language(config: Path) -> "Language":
    """The language of what a command prints: the config's if it names one, else the terminal's. It is searched in the text,
    since the errors of a config that cannot be used need it, too."""
    with suppress(OSError, ValueError):
        if written := _LANGUAGE.search(config.read_text(encoding="utf-8")):
            return "zh" if written[1] == "zh" else "en"
    return terminal_language()


def number_of(rows: Sequence[object], what: str, zh: str = "", language: "Language" = "en") -> str:
    if language == "zh" and zh:
        return f"{len(rows)} {zh}"
    return f"{len(rows)} {what}{'' if len(rows) == 1 else 's'}"


CONFIG = Path("config.yaml")
BOT = Path("bot")
TEMPLATE = Path("gateway", "cli", "config.template.yaml")
KEPT = ("data", ".env", "skills.d", "skills.lock", "tools.d")
"""The files and folders of a bot next to its config."""


def is_clone(folder: Path) -> bool:
    return (folder / TEMPLATE).is_file() and (folder / "Makefile").is_file()


def config_to_read() -> Path:
    """Return the config of this folder that a command means if none is named."""
    own = BOT / CONFIG
    is_used = own.is_file() or (BOT / "data").is_dir()  # its config may have been moved away
    return own if is_used and is_clone(Path()) else CONFIG


def config_to_write() -> Path:
    """Return the config of this folder that a first start writes, or serves if it is there."""
    here = Path()
    return BOT / CONFIG if is_clone(here) and (BOT.is_dir() or not _is_served(here)) else CONFIG


def advice(config: Path) -> Bilingual | None:
    """Return the commands that move a bot out of the way of git; None if its config is not tracked."""
    folder = config.absolute().parent
    if config.name != CONFIG.name or not is_clone(folder):
        return None
    kept = [name for name in KEPT if (folder / name).exists()]
    steps = (
        f"cd {quote(str(folder))}",
        f"mkdir -p {BOT}",
        f"cp -n {CONFIG} {BOT}/",
        *([f"mv {' '.join(kept)} {BOT}/"] if kept else []),
        f"git checkout {CONFIG}",
    )
    commands = " && ".join(steps)
    return Bilingual(
        f"git tracks {config}, so an edit of it can stop a later git pull. Stop the bot and move it into {BOT}/, which "
        f"make run serves: {commands}",
        f"{config} 由 git 跟踪，修改它可能使 git pull 失败。请停止机器人，再把它移到 {BOT}/（make run 使用那里的配置）："
        f"{commands}",
    )


def _is_served(clone: Path) -> bool:
    """Return whether the clone itself has been the folder of a bot: it has data, keys or an edited config."""
    written = (clone / CONFIG).read_text(encoding="utf-8", errors="replace") if (clone / CONFIG).is_file() else ""
    shipped = (clone / TEMPLATE).read_text(encoding="utf-8")
    return any((clone / name).exists() for name in KEPT) or (written != "" and not written.endswith(shipped))
