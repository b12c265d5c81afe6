"""`check`, `status`, `doctor` and `routes explain`: commands that only read."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gateway.cli.options import (
    CONFIG,
    AsJson,
    ConfigOption,
    Exposed,
    environment,
    language,
    load,
    load_file,
    load_in_force,
)
from gateway.observe.terminal import print_json, print_text

if TYPE_CHECKING:
    from channels.bilingual import Status
    from gateway.config.serving import InForce

routes_app = typer.Typer(no_args_is_help=True, help="Which agent answers what.")


def check(
    config: ConfigOption = CONFIG,
    online: Annotated[
        bool, typer.Option("--online", help="Also try what it depends on, like `doctor`: platforms, providers, disk.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check the config file: one line for each mistake, exit code 1 if there is one."""
    from gateway.config.serving import of_file
    from gateway.operate.report import lines, report

    if as_json:
        _examine(of_file, config, lambda probe: online or probe == "config", as_json=True)
        return
    loaded, spoken = load_file(config), language(config)
    for line in lines(report(loaded), spoken):
        print_text(line)
    if reason := loaded.config.server.exposure:
        raise Exposed(reason(spoken))
    print_text(f"{config}：没有问题" if spoken == "zh" else f"{config}: ok")
    if online:
        _examine(of_file, config, lambda probe: probe != "config", as_json=False)


def status(config: ConfigOption = CONFIG, as_json: AsJson = False) -> None:
    """Ask the gateway that serves this config: config, database, channels, model, queue. Exit code 1 if one of them is not
    ok, or if no gateway serves."""
    import asyncio

    from gateway.config.problems import ConfigErrors
    from gateway.observe.secrets import redacted
    from gateway.operate.status import MARKS
    from gateway.operate.status import status as asked

    spoken, found = language(config), load_in_force(config)
    if found.loaded is None or not (found.serving or found.is_exact or found.knows_database):
        raise ConfigErrors(found.problems)
    findings = [it.cleaned(redacted) for it in asyncio.run(asked(found.loaded, found.refusal, found.serving))]
    if as_json:
        print_json([asdict(it) for it in findings])
    for it in () if as_json else findings:
        print_text(f" {it.check:<9} {it(spoken)}", lead=_coloured(it.status, MARKS[it.status]))
    if any(it.status != "ok" for it in findings):
        raise typer.Exit(1)


def doctor(config: ConfigOption = CONFIG, as_json: AsJson = False) -> None:
    """Try what the gateway depends on, also while it serves: credentials, scopes, webhooks, keys, models, clock, database,
    disk, folders, sandbox. Each finding with its fix; exit code 1 if there is an error. No message is sent."""
    from gateway.config.serving import in_force

    _examine(in_force, config, bool, as_json=as_json)


def _examine(
    read: "Callable[[Path, Mapping[str, str]], InForce]", path: Path, wanted: Callable[[str], bool], *, as_json: bool
) -> None:
    import asyncio

    from gateway.observe import logs
    from gateway.observe.secrets import Scrubber, secrets_of
    from gateway.operate import doctor

    scrubber = Scrubber()
    logs.configure(level="error", output="console", scrubber=scrubber)
    found = read(path, environment())
    findings = [it.finding for it in found.problems]
    if found.serving and found.refusal:
        findings = [found.refusal]
    if found.loaded is not None and (found.serving or not found.problems):
        scrubber.learn(secrets_of(found.loaded.config))
        findings += asyncio.run(doctor.examine(found.loaded, serving=found.serving, wanted=wanted))
    if as_json:
        print_json([asdict(it) for it in findings])
    else:
        spoken = language(path)
        for it in sorted(findings, key=lambda it: ("error", "warning", "ok").index(it.status)):
            print_text(it.labelled(it.check, spoken), lead=_coloured(it.status, doctor.WORDS[it.status](spoken)))
        print_text(doctor.summary(findings, spoken))
    if any(it.status == "error" for it in findings):
        raise typer.Exit(1)


def _coloured(status: "Status", text: str) -> str:
    return typer.style(text, fg={"ok": "green", "warning": "yellow", "error": "red"}[status])


@routes_app.callback()
def routes() -> None:
    """Show which agent answers what, and why."""


@routes_app.command("explain")
def explain_route(
    channel: Annotated[str, typer.Option(help="Such as feishu, telegram or web.")],
    account: Annotated[str, typer.Option(help="The account on the channel.")] = "default",
    chat: Annotated[str | None, typer.Option(help="The id of the chat; for a direct chat, --sender is enough.")] = None,
    chat_type: Annotated[
        Literal["direct", "group"] | None, typer.Option(help="By default, a chat that is not the sender is a group.")
    ] = None,
    thread: Annotated[str | None, typer.Option(help="The id of a topic inside the chat.")] = None,
    sender: Annotated[str | None, typer.Option(help="The id of the sender; by default, a person on no list.")] = None,
    config: ConfigOption = CONFIG,
    as_json: AsJson = False,
) -> None:
    """Show how a message would be handled: agent, session, binding, access, model, tools and skills, and why."""
    import time

    from gateway.operate import routes

    loaded = load(config)
    context = routes.message_to(loaded.config, channel, account, chat, chat_type, thread, sender)
    reasons = routes.explained(loaded, context, time.time())
    if as_json:
        print_json(routes.as_json(reasons))
    else:
        print_text("\n".join(routes.lines(reasons)))
