"""`init`: asks a few questions and writes a commented config file, and `.env` beside it for the secrets."""

import json
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.options import CONFIG, ConfigOption, environment, load
from gateway.fault import OperatorError
from gateway.program import MODULE, program


class Platform(StrEnum):
    FEISHU = "feishu"
    TELEGRAM = "telegram"


SECRETS: dict[str, tuple[tuple[str, str], ...]] = {
    "feishu": (
        ("FEISHU_APP_ID", "App ID of the Feishu app (cli_…) / 飞书应用的 App ID"),
        ("FEISHU_APP_SECRET", "its App Secret / 飞书应用的 App Secret"),
    ),
    "telegram": (("TELEGRAM_BOT_TOKEN", "Token of the bot, from @BotFather / @BotFather 给出的 token"),),
}
TEMPLATE = Path(__file__).with_name("config.template.yaml")
"""The template has every platform; each stays off until its secrets are set."""
_SECRET = re.compile(r"[\x21-\x26\x28-\x7e]+")


def init(
    channel: Annotated[
        list[Platform] | None, typer.Option(help="A platform besides the web chat; may be repeated.")
    ] = None,
    provider: Annotated[
        str | None, typer.Option(help="The model's vendor: anthropic, openai, …; by default the one with a key.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="As provider/model; by default the provider's default.")] = None,
    agent: Annotated[str, typer.Option(help="The id of the agent.")] = "assistant",
    yes: Annotated[
        bool, typer.Option("--yes", help="Ask nothing: the options and the environment say it all.")
    ] = False,
    config: ConfigOption = CONFIG,
) -> None:
    """Write a commented config file, and .env beside it for the secrets that you give. A config that is there is never
    changed, and in .env nothing but what it lacks."""
    from dotenv import dotenv_values

    from agents.providers.config import WELL_KNOWN

    if config.exists() or config.is_symlink():
        raise OperatorError(f"{config}: is there already, and stays as it is — choose another file with --config")
    known = {it.names[0]: it for it in WELL_KNOWN if it.names and it.default_model}
    dotenv = config.parent / ".env"
    there = {**dotenv_values(dotenv, interpolate=False), **environment()}
    if not yes:
        names = {it: "Feishu / 飞书" if it == "feishu" else it.capitalize() for it in Platform}
        channel = [it for it in Platform if typer.confirm(f"{names[it]}?", default=it in (channel or []), err=True)]
        if provider is None and model is None:
            found = next((name for name, it in known.items() if any(there.get(key) for key in it.variables)), "auto")
            offered = f"Whose model? {', '.join(known)}, or auto / 使用哪家的模型"
            provider = typer.prompt(offered, default=found, err=True).strip()
        agent = typer.prompt("Id of the agent / 智能体 id", default=agent, err=True).strip()
    if provider not in (None, "auto", *known):
        raise OperatorError(
            f"--provider: expected auto, {', '.join(known)}; for others name a --model (docs/providers.md)"
        )
    vendor = known.get(provider or (model or "").partition("/")[0])
    chosen = model or (vendor.model_of(vendor.names[0]) if vendor else "auto")
    wanted = [(vendor.variables[0], f"Key of {vendor.names[0]} / 密钥")] if vendor else []
    wanted += [it for name in channel or () for it in SECRETS[name]]
    given = {} if yes else {name: it for name, label in wanted if not there.get(name) and (it := _secret(name, label))}
    for pair in SECRETS.values():  # half of one would be a mistake
        if not all(there.get(name) or given.get(name) for name, _ in pair):
            given = {name: it for name, it in given.items() if name not in dict(pair)}
    text = _template().replace("${CLAWGATE_MODEL:-auto}", json.dumps(chosen), 1)
    _write(config, text.replace("- id: assistant", f"- id: {json.dumps(agent)}", 1))
    if given:
        _append(dotenv, "".join(f"{name}='{value}'\n" for name, value in given.items()))
    _report(config, [name for name, _ in wanted if not there.get(name) and name not in given])


def write_default(config: Path) -> None:
    """Writes what `init --yes` does: the environment says whose model."""
    _write(config, _template())
    typer.echo(f"{config.absolute()}: written", err=True)


def _template() -> str:
    """The template with this program's name; `make run` serves the config of a checkout alone."""
    text = TEMPLATE.read_text(encoding="utf-8").replace(f"{'make run':<28}", f"{f'{MODULE} serve':<28}", 1)
    return text.replace(MODULE, program())


def _secret(name: str, label: str) -> str:
    """Asks for a secret; empty if it is to be set later."""
    value: str = typer.prompt(
        f"{label} [{name}; empty: later / 留空则稍后填写]",
        default="",
        show_default=False,
        hide_input=sys.stdin.isatty(),
        err=True,
    ).strip()
    if value and not _SECRET.fullmatch(value):
        raise OperatorError(f"{name}: expected plain ASCII characters without spaces and quotes; nothing was written")
    return value


def _write(path: Path, text: str) -> None:
    """Writes the config. Raises OperatorError if the file exists by now or an option is wrong."""
    from gateway.config.problems import ConfigErrors

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise OperatorError(f"{path}: {error.strerror}; nothing was written") from None
    try:
        load(path)
    except ConfigErrors:
        path.unlink()
        raise


def _append(path: Path, text: str) -> None:
    """Appends to a file that only its owner can read, from its first byte on."""
    import os

    try:
        before = path.read_bytes() if path.exists() else b""
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as file:
            file.write("\n" * (not before.endswith(b"\n") and bool(before)) + text)
    except OSError as error:
        raise OperatorError(f"{path}: {error.strerror} — set the secrets in the environment") from None


def _report(config: Path, missing: list[str]) -> None:
    typer.echo(f"{config}: written")
    if missing:
        typer.echo(f"set {', '.join(missing)} in the environment, or in {config.parent / '.env'}")
    option = "" if config == CONFIG else f" --config {config}"
    for command in ("doctor", "chat", "serve"):
        typer.echo(f"  {program()} {command}{option}")
