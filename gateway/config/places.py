"""The places of a config: a chat of a configured account, as it is named outside a chat."""

from pydantic.alias_generators import to_camel

from channels.access import ANYBODY, AccessConfig
from channels.message import ChatKind, Place, place_of
from gateway.config.channels import Account, ChannelsConfig, configured


def place_in(channels: ChannelsConfig, text: str) -> Place:
    """The place of a configured account that is written. Raises ValueError with what to write."""
    found = list(configured(channels))
    accounts: dict[str, list[str]] = {}
    for it in found:
        accounts.setdefault(it.kind.name, []).append(it.name)
    place = place_of(text, accounts)
    account = next(it for it in found if (it.kind.name, it.name) == (place.channel, place.account))
    if isinstance(account.config, AccessConfig):  # the id of a chat is that of a person or of a group
        person, group = (id_refusals(account, it, place.chat) for it in ("allow_from", "group_allow_from"))
        if place.chat == ANYBODY or (person and group):
            expected = ", or ".join((*person, *group)) or "expected one chat"
            raise ValueError(f"{place.chat!r} is no chat of {place.channel}: {expected}")
    return place


def kind_of(channels: ChannelsConfig, place: Place) -> ChatKind:
    """The kind of chat that a place's id can be: a group if it may be either, which is the stricter."""
    at = (place.channel, place.account)
    account = next((it for it in configured(channels) if (it.kind.name, it.name) == at), None)
    if account is None or not isinstance(account.config, AccessConfig):
        return "direct"
    return "group" if id_refusals(account, "allow_from", place.chat) else "direct"


def id_refusals(account: Account, field: str, id_: str) -> list[str]:
    """The reasons why an id cannot be in that list of ids."""
    found = account.kind.problems(account.config.but(**{field: (id_,)}))
    return [sentence for key, sentence in found if key[0] == to_camel(field)]
