"""Ids for calls that came without one: the same for the same answer, and never one that the history has."""

import hashlib
from collections.abc import Iterator

from agents.messages import AssistantMessage
from agents.providers.provider import ModelRequest


def new_ids(request: ModelRequest, answer: AssistantMessage) -> Iterator[str]:
    """One id after another, for the calls of `answer` in order."""
    told = [call.id for it in request.messages if isinstance(it, AssistantMessage) for call in it.calls]
    taken = {*told, *(call.id for call in answer.calls)}
    seed = f"{answer.response_id or answer.timestamp}:{len(told)}"
    position = 0
    while True:
        call_id = "call_" + hashlib.sha256(f"{seed}:{position}".encode()).hexdigest()[:8]
        position += 1
        if call_id not in taken:
            taken.add(call_id)
            yield call_id
