"""Feishu's refusals as errors that a model can act on: what to do, a login, or the administrator's link."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools.identity import Identities
from tools.tool import Call, ToolError

REASON_CHARS = 300
TOKEN_CODES = (99991668, 99991677)
"""The access token is invalid or expired."""
NOT_GRANTED, APP_LACKS = 99991679, 99991672
_NO_ACCESS = frozenset({
    1770032, 131006, 1310213, 1310211, 1254302, 1254303, 1254304, 91403, 191002, 191003, 191004, 193002, 1470403, 1063002,
})  # fmt: skip
_NOT_FOUND = frozenset({
    1770002, 1770003, 131005, 1310214, 1310215, 1310216, 1310249, 1254003, 1254004, 1254040, 1254041, 1254043, 191001,
    193001, 1470404, 91402,
})  # fmt: skip
_BUSY = frozenset({99991400, 1254036, 1254290, 1254291, 1254607, 1310217, 1315203, 190005, 190010, 193005})
_PERMISSION = re.compile(r"[a-z][a-z0-9_.]*(?::[a-z0-9_.]+)+")
KNOWN = frozenset({*TOKEN_CODES, NOT_GRANTED, APP_LACKS, *_NO_ACCESS, *_NOT_FOUND, *_BUSY})


@dataclass(frozen=True, slots=True)
class Acting:
    """The identity of a call: a person, or the account's app."""

    identities: Identities
    account: str
    is_person: bool

    async def token(self, call: Call, scopes: Sequence[str], refused: str = "") -> str:
        """Raises ToolError."""
        return await self.identities.token(call, self.account, person=self.is_person, scopes=scopes, refused=refused)


async def refusal(code: int, said: str, scopes: Sequence[str], *, acts: Acting, call: Call) -> ToolError:
    """Return the error of a call that Feishu refused, with what to do about it. `scopes` are those that it named, or those
    that the call needs."""
    if code == APP_LACKS:
        return await acts.identities.app_lacks(acts.account, scopes)
    if code == NOT_GRANTED and acts.is_person:
        return await acts.identities.missing(call, acts.account, scopes)
    if code in TOKEN_CODES:
        return ToolError("UNAVAILABLE", "Feishu refuses the token, also a new one; tell the user")
    if code in _NO_ACCESS:
        who = "the person you answer has" if acts.is_person else "the bot's app has"
        message = f"{who} no access to it (Feishu's code {code}); its owner can share it with them. Do not try others"
        return ToolError("NO_ACCESS", message)
    if code in _NOT_FOUND:
        return ToolError(
            "NOT_FOUND", f"there is no such object, or it was deleted (Feishu's code {code}): check its token"
        )
    if code in _BUSY:
        return ToolError("RATE_LIMITED", f"Feishu asks to slow down (code {code}); wait a moment", retryable=True)
    reason = " ".join(said.split())[:REASON_CHARS]
    return ToolError("INVALID_ARGUMENT", f"Feishu refuses the call (code {code}): {reason}")


def missing_scopes(answer: Mapping[str, Any]) -> Sequence[str]:
    """Return the permissions that a refusal names: as violations, or in its text."""
    error = answer.get("error")
    listed = error.get("permission_violations") if isinstance(error, Mapping) else None
    named = [str(it.get("subject", "")) for it in listed if isinstance(it, Mapping)] if isinstance(listed, list) else []
    found = named or re.findall(r"\[([^\]]*)\]", str(answer.get("msg", "")))[-1:]
    return tuple(dict.fromkeys(it for text in found for it in _PERMISSION.findall(text)))
