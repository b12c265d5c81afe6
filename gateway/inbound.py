"""What the inbox holds of a message: its context and the agent it was routed to. Tokens and raw bodies are not kept."""

from dataclasses import dataclass
from functools import lru_cache

from pydantic import TypeAdapter

from channels.message import MessageContext


@dataclass(frozen=True, kw_only=True, slots=True)
class Inbound:
    """`command` is the name of the gateway's command that the message is, None for what an agent answers. `replays` counts
    how often an operator gave the message another chance: its reply then is another reply, with keys of its own."""

    agent: str
    context: MessageContext
    command: str | None = None
    arguments: str = ""
    replays: int = 0


inbound_json: TypeAdapter[Inbound] = TypeAdapter(Inbound)


@lru_cache(maxsize=1_024)
def inbound_of(body: str) -> Inbound:
    """The message in an inbox row's body; parsed once, since a waiting message is looked at several times."""
    return inbound_json.validate_json(body)
