"""Build the record of a turn: a `Recording` collects the loop's events, and `Layers.row` turns it into the row that the
turn's last commit writes. The prompt, the tools and the route with its reasons are shared between turns and stored
once, by hash.

A record holds numbers and references, never text that the journal has. If a process dies, its recording is lost; the
journal rows still show the turn, and the process that ends it records that it was resumed.
"""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
import structlog

from agents import turn as events
from agents.messages import AssistantMessage
from agents.providers.provider import Done, ModelRequest, OneTool
from agents.turn import Emit, TurnEvent
from channels.bilingual import Bilingual
from channels.message import MessageContext
from gateway.observe.logs import logged
from gateway.state.ending import Ending
from gateway.state.reasons import (
    Because,
    access_reason,
    agent_reason,
    binding_reason,
    model_reason,
    session_reason,
    tools_reason,
)
from gateway.state.runtime import Runtime, Setup
from gateway.store.inbound import Inbound
from gateway.store.layers import RECALLED, LayerRow
from gateway.store.sessions import is_control, person_of, session_parts
from gateway.turns.batch import Batch
from gateway.turns.record import (
    CallLayer,
    FailedAttempt,
    HeldTurns,
    RequestLayer,
    SectionLayer,
    TurnRecord,
    response_of,
)

RECORDINGS_MAX = 1_024
KNOWN_MAX = 256
"""Most prompts, tool lists and routes whose hash is remembered."""

log = structlog.get_logger()


class Layers:
    """The recordings of running turns, and the texts that turns share."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._recordings: dict[int, Recording] = {}
        self._known: dict[Any, tuple[str, str]] = {}
        self._of: Setup | None = None
        """The setup that the remembered texts belong to."""

    def follow(self, batch: Batch, emit: Emit) -> Emit:
        """Return an `Emit` that records the batch's turn and forwards its events; `emit` itself if records are not
        kept."""
        if not batch.setup.config.console.keep_days or is_control(batch.lease.sid):
            return emit
        while len(self._recordings) >= RECORDINGS_MAX:  # left by turns that another worker took over
            del self._recordings[next(iter(self._recordings))]
        accepted, is_resumed = batch.messages[-1].at, bool(batch.work.so_far) and not batch.inbound.approval
        began = round(self._runtime.now() - accepted, 4)
        recording = self._recordings[batch.turn] = Recording(
            emit=emit,
            setup=batch.setup,
            numbers=batch.work.numbers,
            zero=time.perf_counter() - began,
            record=TurnRecord(accepted=accepted, began=began, missing=["resumed"] if is_resumed else []),
        )
        return recording.follow

    def drop(self, turn: int) -> None:
        """Discard the recording of a turn that another run will end."""
        self._recordings.pop(turn, None)

    def row(self, sid: str, turn: int, inbound: Inbound | None, ending: Ending, at: float) -> LayerRow | None:
        """Return the record row of a turn that ends. Return None if records are not kept or the row cannot be built;
        the turn ends in either case."""
        try:
            return self._row(sid, turn, inbound, ending, at)
        except Exception as error:
            log.error("layers_not_made", exc_info=error)
            return None

    def _row(self, sid: str, turn: int, inbound: Inbound | None, ending: Ending, at: float) -> LayerRow | None:
        recording = self._recordings.pop(turn, None)
        if not self._runtime.setup.config.console.keep_days or is_control(sid):
            return None
        place = session_parts(sid)
        person = person_of(inbound.context) if inbound and inbound.context.sender.id else ""
        row = LayerRow(agent=place.agent, channel=place.channel, person=person, outcome=ending.outcome, at=at)
        if inbound and ending.outcome == "recalled":
            return replace(row, content=RECALLED)
        if inbound is None or recording is None:
            return row
        shared = self._shared(recording, inbound.context)
        content = recording.record.model_dump_json(by_alias=True, exclude_defaults=True)
        hashes: dict[str, Any] = {name: hash_ for name, (hash_, _) in shared.items()}
        return replace(row, **hashes, content=content, texts=dict(shared.values()))

    def _shared(self, recording: "Recording", context: MessageContext) -> dict[str, tuple[str, str]]:
        """Return the texts that turns share, each with its hash; the rest of the prompt goes into the record."""
        scrub, shared = self._runtime.scrubber.scrub, {}
        if route := self._route(recording, context):
            shared["route"] = route
        if recording.started is not None:
            above, (below, *own) = recording.started.system.sections
            recording.record.prompt = [SectionLayer.of(scrub(it)) for it in own]
            shared["prompt"] = self._remembered(("prompt", above, below), lambda: _sections(above, below, scrub))
        if (request := recording.request) is not None:
            shared["tools"] = self._remembered(("tools", request.tools), lambda: _tools(request, scrub))
        return shared

    def _route(self, recording: "Recording", context: MessageContext) -> tuple[str, str] | None:
        runtime, setup, turn = self._runtime, recording.setup, recording.started.turn if recording.started else None
        agent = session_parts(turn.session).agent if turn else ""
        runner = setup.runners.get(agent)
        if turn is None or runner is None:
            return None
        if setup is not self._of:
            self._of = setup
            self._known.clear()
        chosen, switch, names = runtime.choices.agent(context), runtime.choices.listens(context), setup.mcp.names
        where = (context.channel, context.account, context.chat.id, context.chat.kind, context.chat.thread)
        key = (
            "route",
            *where,
            context.sender.id,
            agent,
            chosen,
            switch,
            turn.settings.model,
            tuple(setup.owners),
            str(names),
        )

        def reasons() -> dict[str, Any]:
            config, owners = setup.config, setup.owners
            channel = setup.channel(context)
            model = turn.settings.model if turn.settings.model in config.choosable_models else None
            access = getattr(channel, "access", None)
            found: Mapping[str, Because] = {
                "agent": agent_reason(config, context, agent, chosen),
                "binding": binding_reason(config, context),
                "session": replace(session_reason(runner.config, context), value=None),  # so many chats share the text
                "access": access_reason(access, owners, context, switch=switch, pairing_state=lambda: "paired"),
                "model": model_reason(runner.config, model),
                "tools": tools_reason(config, owners, runner.config, context, names),
            }
            return {name: self._reason(it) for name, it in found.items()}

        return self._remembered(key, reasons)

    def _reason(self, because: Because) -> dict[str, Any]:
        """Return the value with its reason in English, and in Chinese if there is one."""
        reason, scrub = because.reason, self._runtime.scrubber.scrub
        chinese = {"zh": scrub(reason.zh)} if isinstance(reason, Bilingual) else {}
        return {"value": because.value, "reason": scrub(str(reason))} | chinese

    def _remembered(self, key: Any, make: Callable[[], Any]) -> tuple[str, str]:
        """Return the hash and the JSON of the value of `make`, which is called once per key."""
        found = self._known.get(key)
        if found is None:
            while len(self._known) >= KNOWN_MAX:
                del self._known[next(iter(self._known))]
            text = orjson.dumps(make()).decode()
            found = self._known[key] = hash_of(text), text
        return found


@dataclass(kw_only=True, slots=True)
class Recording:
    """The data that this process has recorded about a running turn."""

    emit: Emit
    setup: Setup
    numbers: Sequence[int]
    record: TurnRecord
    zero: float
    """The `perf_counter` time at which the message was accepted."""
    started: events.TurnStarted | None = None
    request: ModelRequest | None = None

    def follow(self, event: TurnEvent) -> None:
        self.emit(event)
        if type(event) is events.ModelStreamed and type(event.event) is not Done:  # a piece: there may be hundreds
            if self.record.requests and (last := self.record.requests[-1]).first_token_seconds is None:
                last.first_token_seconds = self._since(last.begin)
            return
        with logged("layers_not_noted"):  # who watches a turn never ends it
            self._note(event)

    def _note(self, event: TurnEvent) -> None:
        record = self.record
        match event:
            case events.ModelStreamed(event=Done(message=message)):
                self._done(message)
            case events.ModelCalled():
                self._called(event)
            case events.ToolStarted(call=call):
                round_ = record.requests[-1].round if record.requests else 0
                record.calls.append(CallLayer(id=call.id, round=round_, begin=self._since(0.0)))
            case events.ToolReturned(call=call):
                if noted := next((it for it in record.calls if it.id == call.id and it.seconds is None), None):
                    noted.seconds = self._since(noted.begin)
            case events.ToolFinished(result=result, chars=chars, cut=cut):
                if noted := next((it for it in record.calls if it.id == result.call_id and not it.chars), None):
                    noted.chars, noted.cut = chars, cut
            case events.TurnStarted():
                self.started, record.ready = event, self._since(0.0)
            case _:
                return

    def _since(self, begin: float | None) -> float:
        return round(time.perf_counter() - self.zero - (begin or 0.0), 4)

    def _called(self, event: events.ModelCalled) -> None:
        request = self.request = event.request
        held, choice = self.numbers[-event.held :] if event.held else (), request.tool_choice
        options: dict[str, Any] = {"maxTokens": request.max_tokens}
        if request.thinking:
            options["thinking"] = request.thinking
        options["toolChoice"] = choice.name if isinstance(choice, OneTool) else choice
        self.record.requests.append(
            RequestLayer(
                round=event.round,
                provider=event.provider,
                model=request.model,
                begin=self._since(0.0),
                options=options,
                history=HeldTurns(
                    turns=event.held,
                    first=held[0] if held else None,
                    last=held[-1] if held else None,
                    summary=event.summary,
                ),
                messages=event.own,
            )
        )

    def _done(self, message: AssistantMessage) -> None:
        """Record the end of an attempt. A failed attempt stays in the list of retries."""
        if not self.record.requests:
            return
        request = self.record.requests[-1]
        if (failed := request.response) is not None:
            at = round((request.begin or 0.0) + (request.seconds or 0.0), 4)
            request.retries.append(FailedAttempt(at=at, error=failed.error, words=failed.words))
        request.provider, request.model = message.provider or request.provider, message.model or request.model
        request.seconds = self._since(request.begin)
        request.response = response_of(message)
        request.state = "failed" if message.error else "answered"


def _sections(above: Sequence[str], below: str, scrub: Callable[[str], str]) -> list[dict[str, Any]]:
    texts = [scrub(it) for it in (*above, below)]
    sections = [
        SectionLayer.of(text, stable=number < len(above), hash_=hash_of(text)) for number, text in enumerate(texts)
    ]
    return [it.model_dump() for it in sections]


def _tools(request: ModelRequest, scrub: Callable[[str], str]) -> list[dict[str, Any]]:
    return [
        {
            "name": it.name,
            "summary": scrub(it.summary),
            "description": scrub(it.description),
            "parameters": it.input_schema,
        }
        for it in request.tools
    ]


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:24]
