"""What start-up says, for somebody who has just typed `make run`: where to open it, what is up, what is missing.

A line a channel, a line an agent, then the warnings. Everything else that a config says is in `report`, which `check`
prints.
"""

from collections.abc import Iterator

from agents.config import AgentConfig
from gateway.config.channels import Account, ChannelType, configured
from gateway.config.load import Loaded
from gateway.config.report import bracketed, missing, models, real_model
from gateway.config.root import Config
from gateway.config.server import ServerConfig
from gateway.redaction import redacted

AGENTS_MAX = 4
"""More are counted; `check` names them."""

_LABEL_CHARS = 10

VERSION = "0.1.0"


def greeting(loaded: Loaded, *, link: str | None = None) -> list[str]:
    """One line a fact. `loaded` has the host and the port that are really listened on; `link` is the code that signs in
    to the web chat once."""
    server = loaded.config.server
    return [
        f"Clawgate {VERSION} listens on http://{bracketed(server.host)}:{server.port}",
        *map(redacted, _channels(loaded)),
        *_sign_in(loaded.config.server, link),  # the one secret that is meant to be read here
        *map(redacted, _agents(loaded)),
        _line("stop", "Ctrl-C"),
        *(redacted(f"warning: {warning}") for warning in loaded.warnings),
    ]


def _channels(loaded: Loaded) -> Iterator[str]:
    found = list(configured(loaded.config.channels))
    for kind in loaded.config.channels.kinds.values():
        up = [_account(account, loaded.config) for account in found if account.kind is kind]
        yield from (_line(kind.name, text) for text in up or [_off(kind, loaded)])


def _account(account: Account, config: Config) -> str:
    arrival = account.kind.arrives(account.config, account.name, config)
    return arrival if account.name == "default" else f"{account.name}: {arrival}"


def _sign_in(server: ServerConfig, link: str | None) -> Iterator[str]:
    """The code stands behind the #: browsers send that to nobody."""
    if link is not None:
        within = f"{server.sign_in_link_seconds / 60:.0f} min"
        yield _line("sign in", f"{server.public_url or server.address}/#sign-in={link} (once, within {within})")


def _off(kind: ChannelType, loaded: Loaded) -> str:
    section = getattr(loaded.config.channels, kind.name)
    if section is not None and not section.enabled:
        return f"off: channels.{kind.name}.enabled is false"
    return f"off: {missing(kind, loaded)} (channels/{kind.name}/README.md)"


def _agents(loaded: Loaded) -> Iterator[str]:
    agents = loaded.config.agents.list
    shown = agents if len(agents) <= AGENTS_MAX else agents[: AGENTS_MAX - 1]
    for agent in shown:
        yield _line("agent", f"{agent.id}: {_model(agent, loaded)}")
    if len(shown) < len(agents):
        yield _line("agents", f"{len(agents) - len(shown)} more: python -m gateway check")


def _model(agent: AgentConfig, loaded: Loaded) -> str:
    if agent.model[0].partition("/")[0] != "demo":
        return models(agent, loaded)
    return f"{agent.model[0]}, a script; {real_model(agent, loaded)}"


def _line(label: str, text: str) -> str:
    return f"  {label:<{_LABEL_CHARS}} {text}"
