"""The payload samples: one update of each kind that Telegram sends, with what must become of it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

BOT_ID = 7000000001
BOT_USERNAME = "samples_helper_bot"
BOT_TOKEN = f"{BOT_ID}:sample-token-that-opens-no-door-000"
WEBHOOK_SECRET = "samples_Secret-token_01"
FOLDER = Path(__file__).resolve().parents[2] / "channels" / "telegram" / "samples"

Outcome: TypeAlias = Literal["accepted", "duplicate", "pressed", "voted", "ignored", "rejected"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """`secret` is the header's value; None leaves the header out. The rest is what the context must hold, where the
    sample says: `quote` is the quoted text, `attached` the key of the one attachment, `sender` the sender's id."""

    name: str
    note: str
    outcome: Outcome
    update: dict[str, Any]
    secret: str | None = WEBHOOK_SECRET
    text: str | None = None
    mentioned: bool | None = None
    thread: str | None = None
    quote: str | None = None
    attached: str | None = None
    sender: str | None = None
    more: bool = False


def load_samples() -> list[Sample]:
    """In the order of their numbers; one repeats the one before it."""
    return [
        Sample(name=path.stem, **json.loads(path.read_text(encoding="utf-8"))) for path in sorted(FOLDER.glob("*.json"))
    ]
