"""What the inbox holds of a message: its context and the agent it was routed to. Tokens and raw bodies are not kept."""

from dataclasses import dataclass

from pydantic import TypeAdapter

from channels.message import MessageContext


@dataclass(frozen=True, kw_only=True, slots=True)
class Inbound:
    agent: str
    context: MessageContext


inbound_json: TypeAdapter[Inbound] = TypeAdapter(Inbound)
