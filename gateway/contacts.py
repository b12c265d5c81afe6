"""`python -m gateway pairing`: who may write, approved and revoked beside a running gateway or without one.

Every message of somebody who is on no list is looked up, so what is written here holds from the next one on, everywhere.
"""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from channels.access import ANYBODY, AccessConfig
from gateway.config.channels import Account, configured
from gateway.config.root import Config
from gateway.pairing import hashed
from gateway.store import contacts
from gateway.store.contacts import Contact
from gateway.store.opening import connected
from gateway.store.statements import PAIRING_SECONDS


class UnknownContact(Exception):
    """There is nobody like that."""


def listed(config: Config) -> list[dict[str, Any]]:
    """As JSON. Raises DatabaseUnusable."""
    with connected(config.database) as connection:
        found = contacts.contacts(connection, time.time() - PAIRING_SECONDS)
    return [_facts(it, config) for it in found]


def _facts(contact: Contact, config: Config) -> dict[str, Any]:
    at = datetime.fromtimestamp(contact.approved_at or contact.asked or 0, tz=UTC).astimezone(config.server.zone)
    facts = {"name": contact.name, "channel": contact.channel, "account": contact.account, "id": contact.person}
    state = "approved" if contact.approved_by else "pending"
    return facts | {"state": state, "at": at.isoformat(timespec="seconds"), "approvedBy": contact.approved_by}


def approve(config: Config, who: str) -> list[str]:
    """By a code, or by `channel:id`: what to say of it. Raises UnknownContact and DatabaseUnusable."""
    code = hashed(who)
    if code is None and ":" not in who:
        raise UnknownContact(f"{who}: neither a code, XXXX-XXXX, nor channel:id — `pairing list` shows who waits")
    channel, person, accounts = ("", "", []) if code else _place(config, who)
    with connected(config.database) as connection:
        if code is not None:
            found = contacts.approve_code(connection, code, at=time.time())
        else:
            found = contacts.approve_person(connection, channel, person, [it.name for it in accounts], at=time.time())
    if not found and code is not None:
        raise UnknownContact("no such code: it may be wrong, or older than an hour — `pairing list` shows who waits")
    return [*_approved(config, found)] if found else [f"{who}: may write already"]


def _approved(config: Config, found: Sequence[Contact]) -> Iterator[str]:
    policies = {(it.kind.name, it.name): it.config.dm_policy for it in _accounts(config)}
    for it in found:
        policy = policies.get((it.channel, it.account))
        yield f"{it.name}: may write now" + ("" if it.turn else " (tell them: no message of theirs is kept)")
        if policy != "pairing":
            yield f"warning: dmPolicy is {policy} there, so this counts for nothing until it is pairing"


def revoke(config: Config, who: str) -> list[str]:
    """What to say of it, also of an account that is no longer configured. Raises UnknownContact and DatabaseUnusable."""
    channel, *middle, person = ["", *who.strip().split(":")][-3 if who.count(":") > 1 else -2 :]
    with connected(config.database) as connection:
        found = contacts.revoke(connection, channel, person, "".join(middle))
    if not found:
        raise UnknownContact(f"{who}: was not let in by pairing — `pairing list` shows who was")
    accounts = {(it.kind.name, it.name): it.config for it in _accounts(config)}
    still = ["owners"] if f"{channel}:{person}" in config.owners else []
    for it in found:
        access = accounts.get((it.channel, it.account), AccessConfig())
        still += ["allowFrom"] if {person, ANYBODY} & {*access.allow_from} else []
        still += ["dmPolicy: open"] if access.dm_policy == "open" else []
    notes = [f"{it.name}: may no longer write" for it in found]
    return [*notes, *(f"warning: may write all the same, by {it} in the config" for it in dict.fromkeys(still))]


def _place(config: Config, who: str) -> tuple[str, str, list[Account]]:
    """The channel, the id, and the accounts that `channel:id` or `channel:account:id` means, the likeliest first. Raises
    UnknownContact."""
    channel, *middle, person = who.strip().split(":")
    accounts = [it for it in _accounts(config) if it.kind.name == channel and middle in ([], [it.name])]
    if not accounts or len(middle) > 1:
        known = ", ".join(f"{it.kind.name}:{it.name}" for it in _accounts(config)) or "none"
        raise UnknownContact(f"{who}: expected channel:id or channel:account:id, of a configured account ({known})")
    only = accounts[0].config.model_copy(update={"allow_from": (person,)})
    for key, problem in accounts[0].kind.problems(only):
        if key.startswith("allowFrom"):
            raise UnknownContact(f"{who}: {problem}")
    if person == ANYBODY:
        raise UnknownContact(f"{who}: name one person; dmPolicy: open lets everybody in")
    return channel, person, accounts


def _accounts(config: Config) -> list[Account]:
    return [it for it in configured(config.channels) if isinstance(it.config, AccessConfig)]
