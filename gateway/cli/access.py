"""`pairing` and `approvals`: list and revoke who may write and what was allowed, also while the gateway serves."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.options import CONFIG, AsJson, ConfigOption, language, load
from gateway.observe.terminal import print_list, print_text
from gateway.program import OperatorError

if TYPE_CHECKING:
    from gateway.config.root import Config
    from gateway.store.approvals import DatabaseApprovals

pairing_app = typer.Typer(
    no_args_is_help=True,
    help="Who may write to the bot if dmPolicy is pairing: list, approve and revoke them, also while it serves.",
)
approvals_app = typer.Typer(
    no_args_is_help=True,
    help="Calls that wait for a person's approval, and what was allowed for good; also while the gateway serves.",
)


@pairing_app.command("list")
def list_contacts(as_json: AsJson = False, config: ConfigOption = CONFIG) -> None:
    """List the people who wait with a code, and those who may write."""
    from gateway.operate.contacts import line, listed

    contacts, spoken = listed(load(config, stored=True).config), language(config)
    waiting = sum(it["approvedBy"] is None for it in contacts)
    approved = len(contacts) - waiting
    total = (
        f"等待批准 {waiting} 人，已批准 {approved} 人" if spoken == "zh" else f"{waiting} waiting, {approved} approved"
    )
    print_list(contacts, partial(line, language=spoken), total, as_json=as_json)


@pairing_app.command("approve")
def approve_contact(
    who: Annotated[str, typer.Argument(metavar="CODE", help="The code that they were given; or channel:id.")],
    config: ConfigOption = CONFIG,
) -> None:
    """Let a person write to the bot, on all replicas from now on. They are notified within seconds."""
    from gateway.operate.contacts import approve

    print_text("\n".join(approve(load(config, stored=True).config, who)))


@pairing_app.command("revoke")
def revoke_contact(
    who: Annotated[str, typer.Argument(metavar="CHANNEL:ID", help="Such as feishu:ou_…, or telegram:ACCOUNT:123456.")],
    config: ConfigOption = CONFIG,
) -> None:
    """Take the permission back, from the next message on. What is in allowFrom and owners stays as it is."""
    from gateway.operate.contacts import revoke

    print_text("\n".join(revoke(load(config, exact=True).config, who)))


def _approvals(config: "Config") -> "DatabaseApprovals":
    from gateway.store.approvals import DatabaseApprovals
    from gateway.store.opening import offline

    return DatabaseApprovals(read=offline(config.database), write=offline(config.database))


@approvals_app.command("list")
def list_approvals(as_json: AsJson = False, config: ConfigOption = CONFIG) -> None:
    """List what waits for a decision, and what was allowed for good, oldest first."""
    import asyncio
    import time

    from gateway.approvals.display import facts, line

    loaded = load(config, stored=True).config
    waiting, grants = asyncio.run(_approvals(loaded).listed(time.time()))
    rows = [facts(it, loaded.server.zone) for it in waiting] + [facts(it, loaded.server.zone) for it in grants]
    print_list(rows, line, f"{len(waiting)} waiting, {len(grants)} allowed for good", as_json=as_json)


@approvals_app.command("revoke")
def revoke_approvals(
    name: Annotated[str | None, typer.Argument(metavar="ID", help="A grant or a request, as `list` names it.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that was allowed for good.")] = False,
    config: ConfigOption = CONFIG,
) -> None:
    """End what was allowed for good, or cancel a request that waits; a running gateway heeds it at once."""
    import asyncio
    import time

    from gateway.approvals.approvals import id_of

    if (name is None) != everything:
        raise OperatorError("name what to revoke, such as K7QF-2M9X-D3TA (see `approvals list`), or say --all")
    ended = _approvals(load(config, stored=True).config).revoke(
        None if name is None else id_of(name), by="command line", at=time.time()
    )
    revoked = asyncio.run(ended)
    for it in revoked:
        print_text(f"{it}: revoked")
    if name is not None and not revoked:
        raise OperatorError(f"nothing to revoke: {name} — `approvals list` shows what there is")
