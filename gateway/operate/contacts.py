"""`python -m gateway pairing`: approve and revoke contacts, with or without a running gateway.

Every message of a sender on no list is looked up, so a change takes effect with their next message, on all replicas.
"""

import time
from collections.abc import Iterator, Sequence
from shlex import quote
from typing import Any

from agents.language import Language
from channels.access import ANYBODY, AccessConfig
from channels.bilingual import Bilingual
from channels.moment import iso
from gateway.approvals.display import label, name_of
from gateway.config.channels import Account, configured, id_refusals
from gateway.config.checks import is_example
from gateway.config.root import Config
from gateway.program import OperatorError, program
from gateway.store import contacts, later, logins
from gateway.store.contacts import Contact, hashed
from gateway.store.opening import connected
from gateway.store.owners import BY_CLAIM, added_by, claimed
from gateway.store.statements import PAIRING_SECONDS


def listed(config: Config) -> list[dict[str, Any]]:
    """Return the contacts as JSON, oldest first. Raise DatabaseUnusable."""
    with connected(config.database) as connection:
        found = contacts.contacts(connection, time.time() - PAIRING_SECONDS)
        names = contacts.called(connection, [it.approved_by for it in found if it.approved_by])
        return [facts(it, config) | {"approvedByName": names.get(it.approved_by or "")} for it in found]


def facts(contact: Contact, config: Config) -> dict[str, Any]:
    at = iso(contact.approved_at or contact.asked or 0, config.server.zone)
    place = {"name": contact.name, "channel": contact.channel, "account": contact.account, "id": contact.person}
    facts: dict[str, Any] = {"displayName": contact.called, "owner": bool(contact.owner)}
    state = "approved" if contact.approved_by else "pending"
    return place | facts | {"state": state, "at": at, "approvedBy": contact.approved_by}


def line(it: dict[str, Any], language: Language = "en") -> str:
    approve = f"{program()} pairing approve {quote(it['name'])}"
    state = Bilingual(f"waits: {approve}", f"等待批准：{approve}")
    if by := it["approvedBy"]:
        who, typed = label(by, it["approvedByName"]), by == contacts.COMMAND_LINE
        state = Bilingual(f"approved by {who}", "在命令行批准" if typed else f"由 {who} 批准")
        if it["owner"]:
            state = Bilingual(f"owner, added by {who}", f"所有者，由 {who} 添加")
        if it["owner"] and by == BY_CLAIM:
            state = Bilingual("owner, by a claim code", "所有者，凭认领码")
    called = f"{name}  " if (name := name_of(it["displayName"])) else ""
    return f"{called}{it['name']}  {it['at']}  {state(language)}"


def approve(config: Config, who: str) -> list[str]:
    """Approve a contact by code or `channel:id`, and return the lines to print. Raise OperatorError."""
    code, at = hashed(who), time.time()
    if code is not None:
        with connected(config.database) as connection:
            people = contacts.approve_code(connection, code, at=at)
        if not people:
            raise OperatorError(
                "no such code: it may be mistyped, or more than an hour old — `pairing list` shows who waits"
            )
        return [*_approved(config, people)]
    channel, person, accounts = _place(config, who)
    with connected(config.database) as connection:
        people = contacts.approve_person(connection, channel, person, accounts, at=at)
    return [*_approved(config, people)] or [f"{who}: may write already"]


def _approved(config: Config, people: Sequence[Contact]) -> Iterator[str]:
    policies = {(it.kind.name, it.name): it.config.dm_policy for it in _accounts(config)}
    for it in people:
        policy = policies.get((it.channel, it.account))
        yield f"{it.name}: may write now" + ("" if it.turn else " (tell them: no message of theirs is kept)")
        if policy != "pairing":
            yield f"warning: dmPolicy is {policy} there, so this counts for nothing until it is pairing"


def revoke(config: Config, who: str) -> list[str]:
    """Revoke access, even for an account that is no longer configured, and return the lines to print. Raise
    OperatorError."""
    channel, account, person = _parts(who)
    with connected(config.database) as connection:
        owned = f"{channel}:{person}" in claimed(connection)
        people = contacts.revoke(connection, channel, person, account)
        owned = owned and f"{channel}:{person}" not in claimed(connection)
        places = {(it.channel, it.account) for it in people}
        lists = [it.config.allow_from for it in _accounts(config) if (it.kind.name, it.name) in places]
        listed = f"{channel}:{person}" in config.owners or {person, ANYBODY} & {it for ids in lists for it in ids}
        whose = {it.name: f"{it.channel}:{it.account}:{it.person}" for it in people}
        kept = [it.person for it in added_by(connection, f"{channel}:{person}")] if owned else []
        for it in people:
            logins.forget(connection, it.channel, it.person, it.account)
        ended = {name: 0 if listed else later.end_direct(connection, owner) for name, owner in whose.items()}
    if not people:
        raise OperatorError(f"{who}: was not let in by pairing — `pairing list` shows who was")
    notes = [f"{it.name}: may no longer write{_also(owned, ended[it.name])}" for it in people]
    notes += [
        f"note: {it} is an owner whom they added — `{program()} pairing revoke {quote(it)}` ends that" for it in kept
    ]
    return [*notes, "warning: may write all the same, as owners or allowFrom in the config say so"] if listed else notes


def _also(owned: bool, ended: int) -> str:
    schedules = f"; {ended} schedule{'s' if ended > 1 else ''} of theirs cancelled" if ended else ""
    return (", and is no owner any more" if owned else "") + schedules


def _place(config: Config, who: str) -> tuple[str, str, list[str]]:
    channel, account, person = _parts(who)
    accounts = [it for it in _accounts(config) if it.kind.name == channel and account in ("", it.name)]
    if not accounts or person == ANYBODY:
        places = ", ".join(f"{it.kind.name}:{it.name}" for it in _accounts(config)) or "none"
        raise OperatorError(
            f"{who}: expected a code, or one person as channel:id or channel:account:id, of a configured account ({places})"
        )
    for problem in id_refusals(accounts[0], "allow_from", person):
        raise OperatorError(f"{who}: {problem}")
    if is_example(config.channels, who):
        raise OperatorError(f"{who}: is the example's id — `pairing list` shows who waits")
    return channel, person, [it.name for it in accounts]


def _parts(who: str) -> tuple[str, str, str]:
    parts = who.strip().split(":")
    match parts:
        case [channel, person]:
            return channel, "", person
        case [channel, account, person]:
            return channel, account, person
    return "", "", ""


def _accounts(config: Config) -> list[Account]:
    return [it for it in configured(config.channels) if isinstance(it.config, AccessConfig)]
