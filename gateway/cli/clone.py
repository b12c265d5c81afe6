"""A clone of the repository as the folder of a bot: git tracks its config.yaml, so what is the bot's own is in `bot`.

Git ignores that folder, so no edit of the config stops a `git pull`. A clone that was served before there was such a folder
keeps what it has, until its files are moved.
"""

from pathlib import Path
from shlex import quote

from channels.bilingual import Bilingual

CONFIG = Path("config.yaml")
BOT = Path("bot")
TEMPLATE = Path("gateway", "cli", "config.template.yaml")
KEPT = ("data", ".env", "skills.d", "skills.lock", "tools.d")
"""The files and folders that a bot has beside its config."""


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
        *_moved(kept),
        f"git checkout {CONFIG}",
    )
    commands = " && ".join(steps)
    return Bilingual(
        f"git tracks {config}, so an edit of it can stop a later git pull. Stop the bot and move it into {BOT}/, which "
        f"make run serves: {commands}",
        f"{config} 由 git 跟踪，修改它可能使 git pull 失败。请停止机器人，再把它移到 {BOT}/（make run 使用那里的配置）："
        f"{commands}",
    )


def _moved(kept: list[str]) -> list[str]:
    return [f"mv {' '.join(kept)} {BOT}/"] if kept else []


def _is_served(clone: Path) -> bool:
    """Return whether the clone itself has been the folder of a bot: it has data, keys or an edited config."""
    written = (clone / CONFIG).read_text(encoding="utf-8", errors="replace") if (clone / CONFIG).is_file() else ""
    shipped = (clone / TEMPLATE).read_text(encoding="utf-8")
    return any((clone / name).exists() for name in KEPT) or (written != "" and not written.endswith(shipped))
