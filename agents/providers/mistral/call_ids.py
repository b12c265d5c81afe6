"""Ids of calls as Mistral takes them: exactly nine letters or digits.

The same id for a call and its result, unique in one request, and equal from request to request, for what a model has
seen once it should see again. Ids that fit stay as they are.
"""

import hashlib
import re
from collections.abc import Iterable

LENGTH = 9
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def fits(call_id: str) -> bool:
    return re.fullmatch(r"[a-zA-Z0-9]{9}", call_id) is not None


def fitting_ids(call_ids: Iterable[str]) -> dict[str, str]:
    """What each id is called on the wire."""
    given = dict.fromkeys(call_ids)
    fitting = {call_id: call_id for call_id in given if fits(call_id)}
    taken = set(fitting)
    for call_id in given:
        if call_id not in fitting:
            fitting[call_id] = _untaken(call_id, taken)
            taken.add(fitting[call_id])
    return fitting


def _untaken(call_id: str, taken: set[str]) -> str:
    attempt = 0
    while (derived := _derived(call_id, attempt)) in taken:
        attempt += 1
    return derived


def _derived(call_id: str, attempt: int) -> str:
    seed = call_id.encode("utf-8", "surrogatepass") + b"\0" * attempt
    number = int.from_bytes(hashlib.sha256(seed).digest())
    letters = []
    for _ in range(LENGTH):
        number, place = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[place])
    return "".join(letters)
