"""`serve`, and the commands that look at the same config: `check`, `doctor`, `routes explain`."""

import os
import subprocess
import sys
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
    advice,
    environment,
    language,
    load,
    load_file,
    load_in_force,
)
from gateway.observe.terminal import print_json, print_text
from gateway.program import OperatorError

if TYPE_CHECKING:
    from channels.bilingual import Status
    from gateway.config.root import Config
    from gateway.config.serving import InForce

routes_app = typer.Typer(no_args_is_help=True, help="Which agent answers what.")


def serve(
    config: ConfigOption = CONFIG,
    host: Annotated[str | None, typer.Option(help="Listen here instead of server.host.")] = None,
    port: Annotated[int | None, typer.Option(help="Listen here instead of server.port.", min=0, max=65535)] = None,
    init: Annotated[
        bool, typer.Option("--init", help="Write a config first if there is none, and a token if the page needs one.")
    ] = False,
) -> None:
    """Serve the page and the channels until Ctrl-C or SIGTERM."""
    from gateway.cli.init import prepare

    made_token = init and prepare(config, host)
    run_gateway(config, host, port, made_token=made_token)


def run_gateway(
    config: Path,
    host: str | None = None,
    port: int | None = None,
    *,
    shown: Callable[[str], object] | None = None,
    made_token: bool = False,
) -> None:
    """Serve until a signal ends it. `shown` gets the address of the page once it listens, unless one has to sign in.
    `made_token`: this start has made the token of the page, so it also prints a link."""
    from gateway.app.gateway import Gateway
    from gateway.app.serve import Reload, harden, listen, run
    from gateway.config.serving import ServingFile
    from gateway.observe import logs
    from gateway.observe.secrets import Scrubber, secrets_of
    from gateway.operate.report import greeting
    from gateway.store.errors import StoreUnavailable
    from gateway.store.migrate import refused
    from gateway.store.opening import open_store

    loaded = load_file(config)
    server = loaded.config.server
    host, port = host or server.host, server.port if port is None else port
    settings = loaded.listening(host, port).config
    if reason := settings.server.exposure:
        raise Exposed(reason(language(config)))
    scrubber = Scrubber()

    def log_as_in(current: "Config") -> None:
        scrubber.learn(secrets_of(current))
        logs.configure(level=current.logging.level, output=current.logging.format, scrubber=scrubber)

    log_as_in(settings)
    sys.excepthook = logs.crashed
    harden()
    listener = listen(host, port)
    try:
        gateway = Gateway(settings, loaded.environment, store=open_store(settings.database), scrubber=scrubber)
    except OSError as error:
        raise OperatorError(str(error)) from None
    loaded_as = loaded.listening(host, listener.getsockname()[1])
    spoken = language(config)
    if tracked := advice(config):
        print_text(tracked(spoken), err=True)
    link = gateway.offer_first_link() if made_token else gateway.offer_link()
    for line in greeting(loaded_as, link=link, language=spoken):
        print_text(line, err=True)
    if shown is not None and link is None and (web := settings.channels.web) and web.enabled:
        shown(loaded_as.config.server.address)
    version, home = gateway.runtime.config_state.version, environment().get("HOME", "")
    record = ServingFile(config, loaded_as.config, loaded.source, version, home=home)
    reload = Reload(gateway, config, environment(), loaded, applied=log_as_in, record=record)
    try:
        run(gateway, listener, reload, language=spoken)
    except StoreUnavailable as error:
        raise refused(error, settings.database.shown) from None
    finally:
        record.close()


def serve_shown(config: Path) -> None:
    """Serves until a signal ends it, and opens the page if a person can see it."""
    os.umask(umask := os.umask(0))  # as it is before the gateway makes its own strict: the browser is no part of it
    run_gateway(config, shown=lambda address: _browse(address, umask) if has_display(environment()) else None)


def has_display(env: Mapping[str, str]) -> bool:
    """A browser that is started here is seen by the person at the terminal."""
    if "SSH_CONNECTION" in env:
        return False
    return sys.platform == "darwin" or bool(env.get("DISPLAY") or env.get("WAYLAND_DISPLAY"))


def _browse(address: str, umask: int) -> None:
    """Starts a separate process: some browsers hold their caller for seconds, and Ctrl-C is not for them."""
    command = [sys.executable, "-I", "-m", "webbrowser", address]
    null = subprocess.DEVNULL
    subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True, umask=umask)


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
