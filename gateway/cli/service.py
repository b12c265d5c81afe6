"""`service`: install Clawgate as a systemd user service, which restarts it and starts it at login.

The unit uses absolute paths of this program and this config. It has no shell environment, so secrets must be in `.env`
next to the config. docs/deploy.md has an example of a system service.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.options import CONFIG, ConfigOption, environment, load_file
from gateway.observe.terminal import print_text
from gateway.program import COMMAND, OperatorError, program

if TYPE_CHECKING:
    from gateway.config.load import Loaded

service_app = typer.Typer(no_args_is_help=True)
UNIT = "clawgate.service"
TEXT = """\
[Unit]
Description=Clawgate

[Service]
WorkingDirectory={folder}
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
Restart=always
RestartSec=1
# longer than limits.graceSeconds
TimeoutStopSec={stop_seconds:.0f}
LimitNOFILE=65536
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""
GRACE_MARGIN_SECONDS = 15


@service_app.callback()
def service() -> None:
    """Run Clawgate as a service of your own, by systemd."""


@service_app.command()
def install(
    config: ConfigOption = CONFIG,
    only_print: Annotated[bool, typer.Option("--print", help="Print the unit, and change nothing.")] = False,
) -> None:
    """Write the unit and start it; it starts again after a crash, and whenever you log in."""
    from gateway.operate.backup import set_outside

    if not only_print:
        _systemctl("daemon-reload")  # before anything is read or written: where none answers, this is said at once
    loaded = load_file(config)
    text = unit(config.absolute(), loaded)
    if only_print:
        print_text(text, nl=False)
        return
    path = _path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OperatorError(f"{path}: {error.strerror}; nothing was installed") from None
    for words in (("daemon-reload",), ("enable", UNIT), ("restart", UNIT)):
        _systemctl(*words)
    print_text(f"{path}: written, and started\n  log           journalctl --user -fu {COMMAND}")
    print_text("  without you   loginctl enable-linger    # else it ends when you log out")
    dotenv = config.absolute().parent / ".env"
    if names := set_outside(loaded, dotenv, environment()):
        print_text(f"  missing       {', '.join(names)}: set in this shell alone; write it into {dotenv}")


@service_app.command()
def uninstall() -> None:
    """Stop the service and remove its unit. Config and data stay."""
    path = _installed()
    _systemctl("disable", "--now", UNIT)
    path.unlink()
    _systemctl("daemon-reload")
    print_text(f"{path}: removed; config and data stay where they are")


@service_app.command()
def status() -> None:
    """Show what systemd knows of the service; exit code 0 while it runs."""
    _installed()
    done = subprocess.run([_program("systemctl"), "--user", "--no-pager", "status", UNIT], check=False)
    raise typer.Exit(done.returncode)


def unit(config: Path, loaded: "Loaded") -> str:
    """The unit of this program with this config, both by their whole paths."""
    checkout = Path(__file__).resolve().parents[2]
    called = [str(Path(sys.argv[0]).absolute())] if program() == COMMAND else [sys.executable, "-m", "gateway"]
    folder = config.parent if program() == COMMAND else checkout  # Python finds the module from there
    return TEXT.format(
        folder=str(folder).replace("%", "%%"),
        command=" ".join(map(_quoted, (*called, "serve", "--config", str(config)))),
        stop_seconds=loaded.config.limits.grace_seconds + GRACE_MARGIN_SECONDS,
    )


def _quoted(word: str) -> str:
    """A word as ExecStart wants it: its own quotes, and no expansion."""
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{word}"' if any(it.isspace() or it in "'\";" for it in word) else word


def _path() -> Path:
    env = environment()
    folder = env.get("XDG_CONFIG_HOME") or str(Path(env.get("HOME") or Path.home()) / ".config")
    return Path(folder) / "systemd" / "user" / UNIT


def _installed() -> Path:
    """Raises OperatorError if it is not."""
    if not (path := _path()).is_file():
        raise OperatorError(f"{path}: is not there — {program()} service install")
    return path


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise OperatorError(
            f"this machine has no {name}: systemd does not run here. Have its own supervisor start what "
            f"`{program()} service install --print` names under ExecStart"
        )
    return found


def _systemctl(*words: str) -> None:
    """Raises OperatorError with what systemd says."""
    done = subprocess.run([_program("systemctl"), "--user", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[0]
        raise OperatorError(f"systemctl --user {' '.join(words)}: {reason}")
