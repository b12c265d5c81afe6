"""The payload samples: one event of each kind that Feishu sends, with what must become of it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

APP_ID = "cli_sample0000000001"
VERIFICATION_TOKEN = "sample-verification-token"
BOT_OPEN_ID = "ou_5aa0d3e33fb57ba28c5e5e077a15faab"
FOLDER = Path(__file__).resolve().parents[2] / "channels" / "feishu" / "samples"

Outcome: TypeAlias = Literal["accepted", "duplicate", "ignored", "answered", "rejected"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """`event` is the decrypted body. `text` and `mentioned` are what the context must hold, where the sample says."""

    name: str
    note: str
    encrypted: bool
    outcome: Outcome
    event: dict[str, Any]
    text: str | None = None
    mentioned: bool | None = None


def load_samples() -> list[Sample]:
    """In the order of their numbers; some repeat an earlier one."""
    return [
        Sample(name=path.stem, **json.loads(path.read_text(encoding="utf-8"))) for path in sorted(FOLDER.glob("*.json"))
    ]
