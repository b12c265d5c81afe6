"""`init` writes a commented config and `.env`; `serve`, or no command at all, runs the gateway on them."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.options import (
    CONFIG,
    SECRETS,
    ConfigOption,
    Exposed,
    Platform,
    advice,
    config_to_read,
    config_to_write,
    environment,
    language,
    load_file,
    terminal_language,
)
from gateway.observe.terminal import print_text
from gateway.program import COMMAND, OperatorError, program

if TYPE_CHECKING:
    from gateway.cli.wizard import ConfigDraft
    from gateway.config.root import Config

TEMPLATE = Path(__file__).with_name("config.template.yaml")
"""The shipped config with every platform; each is off until its secrets are set."""
_SCHEMA = "# yaml-language-server: "


def examples() -> Mapping[str, Path]:
    """Return the documentation's example configs by name."""
    from agents.runner import DOCS_DIR

    return {it.stem: it for it in sorted((DOCS_DIR / "examples").glob("*.yaml"))}


def init(
    channel: Annotated[
        list[Platform] | None, typer.Option(help="A platform besides the web chat; may be repeated.")
    ] = None,
    provider: Annotated[
        str | None, typer.Option(help="The model's vendor: anthropic, openai, …; by default the one with a key.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="As provider/model; by default the provider's default.")] = None,
    agent: Annotated[str, typer.Option(help="The id of the agent.")] = "assistant",
    example: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="EXAMPLE",
            help="Begin with an example of docs/cookbook.md, such as family-telegram.",
            autocompletion=lambda incomplete: [it for it in examples() if it.startswith(incomplete)],
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Ask nothing: the options and the environment say it all.")
    ] = False,
    config: ConfigOption = CONFIG,
) -> None:
    """Write a commented config file, and next to it .env with the secrets that you enter; each is tested
    immediately. An existing config is never changed, and only missing keys are added to .env."""
    from gateway.cli.wizard import ConfigDraft
    from gateway.config.load import DOTENV, over_file

    if config.exists() or config.is_symlink():
        raise OperatorError(f"{config}: already exists and was not changed — choose another file with --config")
    there = over_file(config.parent / DOTENV, environment())
    base = _template() if example is None else _example(example)
    draft = ConfigDraft(base=base, there={name: value for name, value in there.items() if value})
    chosen = _chosen(provider, model)
    if yes:
        draft.model, draft.agent = (chosen or "auto", agent) if example is None else ("", "")
        wanted = _wanted(draft, channel or [], provider)
        _finish(draft, config, [it for it in wanted if not draft.value(it)])
        return
    from gateway.cli.wizard import Wizard, other_port

    draft.port = other_port(base, there)
    wizard = Wizard(draft, terminal_language())
    if example is None:
        wizard.ask(channel or [], provider, model, agent)
    else:
        wizard.fill()
    missing = [*dict.fromkeys([*wizard.later, *draft.missing])]
    is_whole = _finish(draft, config, missing)
    _say_port(draft.port)
    if is_whole and wizard.yes("start", default=True):
        serve_shown(config)


def start() -> None:
    """Serve the config of this folder; write one first if there is none, as `init --yes` does: the environment says whose
    model. If the usual port is taken, the new config has the next free one. Show the page if there is a display."""
    config = config_to_write()
    if not config.exists() and not config.is_symlink():
        from gateway.cli.wizard import other_port, with_port
        from gateway.config.load import DOTENV, over_file

        text = _template()
        port = other_port(text, over_file(config.parent / DOTENV, environment()))
        _write(config, with_port(text, port) if port else text, environment())
        print_text(f"{config.absolute()}: written", err=True)
        _say_port(port)
    serve_shown(config)


def serve(
    config: ConfigOption = CONFIG,
    host: Annotated[str | None, typer.Option(help="Listen here instead of server.host.")] = None,
    port: Annotated[int | None, typer.Option(help="Listen here instead of server.port.", min=0, max=65535)] = None,
    init: Annotated[
        bool, typer.Option("--init", help="Write a config first if there is none, and a token if the page needs one.")
    ] = False,
) -> None:
    """Serve the page and the channels until Ctrl-C or SIGTERM."""
    made_token = init and prepare(config, host)
    run_gateway(config, host, port, made_token=made_token)


def _say_port(port: int) -> None:
    if port:
        from gateway.cli.wizard import USUAL_PORT

        en = f"port {USUAL_PORT} is taken on this machine: the new config has {port} (server.port)"
        zh = f"本机的 {USUAL_PORT} 端口已被占用：新配置使用 {port}（server.port）"
        print_text(zh if terminal_language() == "zh" else en, err=True)


def prepare(config: Path, host: str | None) -> bool:
    """Write the config if there is none, and a token for the page if it is exposed and no one could sign in. Return whether
    a token was written. Raise OperatorError."""
    import fcntl
    import secrets

    from gateway.config.exposure import way_in
    from gateway.config.load import DOTENV, append, load

    folder = config.absolute().parent
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OperatorError(_unwritable(folder))
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # replicas may share the folder and start together
        if not config.exists() and not config.is_symlink():
            _write(config, _template(), environment())
            print_text(f"{config.absolute()}: written", err=True)
        loaded = load(config, environment())
        server = loaded.config.server
        named = loaded.names.get(("server", "adminToken"), ())
        if way_in(loaded.listening(host or server.host, server.port).config) != "closed" or not named:
            return False
        append(folder / DOTENV, {named[0]: secrets.token_hex(24)})
        print_text(f"{folder / DOTENV}: {named[0]} written, the token that signs in to the page", err=True)
        return True
    except OSError as error:
        raise OperatorError(f"{error.filename or folder}: {error.strerror}") from None
    finally:
        os.close(lock)


def _unwritable(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder}: there is no such folder"
    owner = folder.stat()
    other = (
        f", or run as {owner.st_uid}:{owner.st_gid} (docker compose: CLAWGATE_UID and CLAWGATE_GID)"
        if owner.st_uid
        else ""
    )
    return (
        f"{folder}: belongs to user {owner.st_uid}, and this runs as user {os.geteuid()}, who cannot write there — "
        f"chown -R {os.geteuid()}:{os.getegid()} that folder{other}"
    )


def run_gateway(
    config: Path,
    host: str | None = None,
    port: int | None = None,
    *,
    shown: Callable[[str], object] | None = None,
    made_token: bool = False,
) -> None:
    """Serve until a signal. `shown` gets the page's URL once the gateway listens, unless the page needs a sign-in. With
    `made_token`, this start has written the page's token, so it also prints a link."""
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
    """Serve until a signal, and open the page in a browser if there is a display."""
    os.umask(umask := os.umask(0))  # the browser keeps the user's umask; the gateway sets a strict one
    run_gateway(config, shown=lambda address: _browse(address, umask) if has_display(environment()) else None)


def has_display(env: Mapping[str, str]) -> bool:
    """Return whether a browser started here is visible to the user."""
    if "SSH_CONNECTION" in env:
        return False
    return sys.platform == "darwin" or bool(env.get("DISPLAY") or env.get("WAYLAND_DISPLAY"))


def _browse(address: str, umask: int) -> None:
    # In a separate process, since some browsers block for seconds, and Ctrl-C must not reach them.
    command = [sys.executable, "-I", "-m", "webbrowser", address]
    null = subprocess.DEVNULL
    subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True, umask=umask)


def _chosen(provider: str | None, model: str | None) -> str:
    from agents.providers.config import WELL_KNOWN

    vendors = {it.names[0]: it for it in WELL_KNOWN if it.names and it.default_model}
    if provider not in (None, "auto", *vendors):
        expected = f"expected auto, {', '.join(vendors)}"
        raise OperatorError(f"--provider: {expected}; for others name a --model (docs/providers.md)")
    return model or (vendors[provider].model_of(provider) if provider in vendors else "")


def _wanted(draft: "ConfigDraft", channels: list[Platform], provider: str | None) -> list[str]:
    from agents.providers.config import well_known

    vendor = well_known(provider or draft.model.partition("/")[0])
    return [
        *(vendor.variables[:1] if vendor else ()),
        *(it for name in channels for it in SECRETS[name]),
        *draft.missing,
    ]


def _example(name: str) -> str:
    from gateway.config.problems import quoted, suggestion

    found = examples()
    if name not in found:
        raise OperatorError(f"--from: there is no example {quoted(name)}{suggestion(name, found)}")
    lines = found[name].read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(_SCHEMA))


def _template() -> str:
    return TEMPLATE.read_text(encoding="utf-8").replace(f"{COMMAND} ", f"{program()} ")


def _finish(draft: "ConfigDraft", config: Path, missing: list[str]) -> bool:
    """Write the config and `.env`, print the next steps, and return whether nothing required is missing."""
    from gateway.config.load import DOTENV, append

    if draft.missing:
        draft.load()  # validates the rest
        _create(config, draft.text)
    else:
        _write(config, draft.text, {**environment(), **draft.given})
    dotenv = config.parent / DOTENV
    try:
        if draft.given:
            append(dotenv, draft.given)
    except OSError as error:
        raise OperatorError(f"{dotenv}: {error.strerror} — set the secrets in the environment") from None
    zh = terminal_language() == "zh"
    print_text(f"{config}：已写入" if zh else f"{config}: written")
    if missing and zh:
        print_text(f"请在环境变量或 {dotenv} 中设置：{'、'.join(missing)}")
    elif missing:
        print_text(f"set {', '.join(missing)} in the environment, or in {dotenv}")
    option = "" if config == config_to_read() else f" --config {config}"
    for command in ("doctor", "chat", "serve"):
        print_text(f"  {program()} {command}{option}")
    return not draft.missing


def _write(path: Path, text: str, env: Mapping[str, str]) -> None:
    from gateway.config.load import load
    from gateway.config.problems import ConfigErrors

    _create(path, text)
    try:
        load(path, env)
    except ConfigErrors:
        path.unlink()
        raise


def _create(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise OperatorError(f"{path}: {error.strerror}; nothing was written") from None
