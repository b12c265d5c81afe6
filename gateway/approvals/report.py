"""Approvals and grants as the command line prints them."""

import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from gateway.approvals.display import value
from gateway.store.approvals import Approval, Grant


def facts(it: Approval | Grant, zone: ZoneInfo) -> dict[str, Any]:
    """In JSON: `kind` is `pending` or `grant`."""
    request = json.loads(it.request)
    shared = {"id": it.id, "agent": it.agent, "tool": request["tool"], "text": request["text"], "digest": it.digest}
    if isinstance(it, Grant):
        used = _moment(it.last_used_at, zone)
        of_grant = {"by": it.granted_by, "since": _moment(it.granted_at, zone), "uses": it.uses, "lastUsed": used}
        return {"kind": "grant", **shared, **of_grant, "expires": _moment(it.expires, zone)}
    asked = {"requester": it.requester, "session": it.sid, "since": _moment(it.created, zone)}
    return {"kind": "pending", **shared, **asked, "expires": _moment(it.expires, zone)}


def line(it: dict[str, Any]) -> str:
    who = f"by {it['by']}, uses {it['uses']}" if it["kind"] == "grant" else f"for {it['requester']}"
    return f"{it['id']}  {it['kind']}  {it['agent']}  {it['tool']}  until {it['expires']}  {who}  {value(it['text'])}"


def _moment(at: float | None, zone: ZoneInfo) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, tz=UTC).astimezone(zone).isoformat(timespec="seconds")
