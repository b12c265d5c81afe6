"""The port that `Toolbox` asks before a call which a person must approve: it decides whether the call runs at all.

A tool says by its `subject` which of its calls need an approval; the gate may demand an approval of any other. A person
approves one exact request, named by its digest. Asking is not here.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tools.tool import Call, Subject, ToolResult

DOMAIN = b"clawgate.approval.v1\0"


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One call as it would run now. `arguments` are the model's, and what runs once it is approved."""

    tool: str
    arguments: Mapping[str, Any]
    subject: Subject

    def canonical(self, agent: str) -> str:
        """All that is bound, as JSON in its one form: escapes only, so that no two texts look alike in it."""
        subject = self.subject
        bound = {"v": 1, "tool": self.tool, "agent": agent, "arguments": dict(self.arguments), "text": subject.text}
        return canonical(bound | {"facts": dict(subject.facts), "identity": dict(subject.identity)})


def canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_of(request: str) -> str:
    """The digest of a canonical request."""
    data = request.encode()
    return hashlib.sha256(DOMAIN + len(data).to_bytes(8, "big") + data).hexdigest()


class Permit(Protocol):
    async def finished(self, result: ToolResult) -> None:
        """Records that the call has run."""


class Gate(Protocol):
    def demands(self, tool: str, call: Call) -> bool:
        """True if this call needs an approval, even if its tool says otherwise."""

    async def admit(self, request: Request, call: Call) -> Permit:
        """Raises ToolError if it may not run, or not yet."""
