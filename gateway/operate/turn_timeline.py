"""The timeline of a turn: where its time went, from the message that came to the commit of the reply."""

from collections.abc import Iterator, Sequence

from gateway.operate.turn_layers import CallLayer, RequestLayer, Stage


def timeline(
    requests: Sequence[RequestLayer],
    calls: Sequence[CallLayer],
    *,
    waited: float,
    begun: float,
    ready: float,
    ended: float | None,
) -> tuple[Stage, ...]:
    """The stages by their begin, in seconds since the message was accepted. `waited` is the time in the inbox, `begun` the
    turn's begin, `ready` that of its prompt, `ended` its last commit."""
    begins = [it.begin for it in requests if it.begin is not None]
    ready = begins[0] if begins else ready
    stages = [Stage(kind="waited", label="waited", begin=0.0, seconds=round(waited, 4))] if waited > 0 else []
    stages.append(Stage(kind="prepared", label="prepared", begin=begun, seconds=round(ready - begun, 4)))
    stages += [*_of_requests(requests), *_of_calls(calls)]
    spans = [(it.begin, it.seconds) for it in requests] + [(it.begin, it.seconds) for it in calls]
    if ended is not None and (ends := [begin + (seconds or 0.0) for begin, seconds in spans if begin is not None]):
        last = max(ends)
        stages.append(Stage(kind="reply", label="reply", begin=last, seconds=round(max(0.0, ended - last), 4)))
    return tuple(sorted(stages, key=lambda it: it.begin))


def _of_requests(requests: Sequence[RequestLayer]) -> Iterator[Stage]:
    for it in requests:
        if it.begin is not None:
            label, seconds, failed = f"{it.provider}/{it.model}", it.seconds or 0.0, it.state == "failed"
            yield Stage(kind="request", label=label, begin=it.begin, seconds=seconds, failed=failed)
            for one in it.retries:
                yield Stage(kind="retry", label=one.error, begin=one.at, seconds=0.0, failed=True)


def _of_calls(calls: Sequence[CallLayer]) -> Iterator[Stage]:
    for it in calls:
        if it.begin is not None:
            failed = it.state == "failed"
            yield Stage(kind="call", label=it.tool, begin=it.begin, seconds=it.seconds or 0.0, failed=failed)
