"""Turns layer by layer, for the operator: the list, and one turn as its row, the journal, the inbox and the outbox tell it.

Nothing is guessed: what no row has is missing in the answer, which says why. Texts are scrubbed once more on the way out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Any

import orjson
from pydantic import TypeAdapter

from channels.message import MessageContext
from channels.moment import iso
from gateway.operate.turn_layers import (
    ApprovalLayer,
    CallLayer,
    EventLayer,
    FailedAttempt,
    HeldTurns,
    Missing,
    PartLayer,
    RequestLayer,
    ResponseLayer,
    SectionLayer,
    Stage,
    StepLayer,
    TurnLayers,
    TurnList,
    TurnSummary,
    TurnTokens,
)
from gateway.records.inbound import Inbound, inbound_of, is_readable
from gateway.records.sessions import person_of, session_parts
from gateway.store.layers import FILTERS, TURNS_MAX, DatabaseLayers, ListedTurn, StoredTurn, hashes_in
from gateway.store.statements import OutboxStatus
from gateway.turns.layers import heading_of

PREVIEW_CHARS = 200
STEPS = ("user", "steered", "assistant", "toolResult")
_PART_STATES: Mapping[int, Any] = {
    OutboxStatus.QUEUED: "queued",
    OutboxStatus.SENT: "sent",
    OutboxStatus.FAILED: "failed",
}
context_json: TypeAdapter[MessageContext] = TypeAdapter(MessageContext)


async def turn_list(
    layers: DatabaseLayers, *, before: int | None, only: Mapping[str, str], zone: tzinfo, keep_days: float
) -> TurnList:
    """The newest turns below `before` that are as `only` says: agent, channel, person, outcome."""
    only = {name: only[name] for name in FILTERS if only.get(name)}
    is_open = only.get("outcome") in ("waiting", "running")
    found = [] if is_open else await layers.listed(before=before, only=only)
    unfinished = await layers.unfinished() if before is None and (is_open or "outcome" not in only) else []
    turns = [it for it in (summary(it, zone) for it in unfinished) if _is_meant(it, only)]
    turns += [summary(it, zone) for it in found]
    return TurnList(turns=tuple(turns), before=found[-1].turn if len(found) == TURNS_MAX else None, keep_days=keep_days)


def _is_meant(turn: TurnSummary, only: Mapping[str, str]) -> bool:
    return all(getattr(turn, name) == wanted for name, wanted in only.items())


def summary(turn: ListedTurn, zone: tzinfo) -> TurnSummary:
    place, final = session_parts(turn.sid), orjson.loads(turn.final) if turn.final else {}
    inbound = _inbound(turn.body or "")
    ended = turn.at if turn.outcome else None
    accepted = turn.accepted or ended or 0.0
    tokens = final.get("tokens") or {}
    return TurnSummary(
        id=turn.turn,
        session=turn.sid,
        agent=place.agent,
        channel=place.channel,
        account=place.account,
        chat=place.chat,
        thread=place.thread,
        person=turn.person or (person_of(inbound.context) if inbound and inbound.context.sender.id else ""),
        name=turn.name or (inbound.context.sender.name or "" if inbound else ""),
        text=inbound.context.text[:PREVIEW_CHARS] if inbound else "",
        outcome=turn.outcome or ("running" if turn.begun else "waiting"),
        reason=final.get("reason", ""),
        at=iso(accepted, zone),
        seconds=None if ended is None or turn.accepted is None else round(ended - turn.accepted, 3),
        model=next(reversed(final.get("models") or {"": None})),
        requests=final.get("requests", 0),
        calls=len(orjson.loads(turn.content).get("calls", ())),
        tokens=TurnTokens(**tokens),
        cost=final.get("cost"),
    )


def _inbound(body: str) -> Inbound | None:
    return inbound_of(body) if body and is_readable(body) else None


async def turn_layers(layers: DatabaseLayers, turn: int, zone: tzinfo) -> TurnLayers | None:
    """One turn; None if there is none with this number."""
    stored = await layers.get(turn)
    return _Reading(stored, zone).layers() if stored else None


def scrubbed(shown: TurnLayers | TurnList, scrub: Callable[[str], str]) -> dict[str, Any]:
    """The JSON without secrets. Takes milliseconds for a long turn."""
    found: dict[str, Any] = cleaned(shown.model_dump(by_alias=True), scrub)
    return found


def cleaned(value: Any, scrub: Callable[[str], str]) -> Any:
    """Plain data with every text in it scrubbed."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {name: cleaned(it, scrub) for name, it in value.items()}
    return [cleaned(it, scrub) for it in value] if isinstance(value, list | tuple) else value


@dataclass
class _Reading:
    """One turn, being read."""

    stored: StoredTurn
    zone: tzinfo

    def __post_init__(self) -> None:
        self.layer = self.stored.layer or {}
        self.kept: Mapping[str, Any] = orjson.loads(self.layer.get("content", "{}"))
        self.final = next((_json(it["content"]) for it in self.stored.rows if it["kind"] == "final"), None)
        self.rows = [(it, _json(it["content"])) for it in self.stored.rows if it["kind"] in STEPS]
        self.inbounds = [(it, _inbound(it["body"])) for it in self.stored.messages]
        own = next((it for it in self.stored.messages if it["id"] == self.stored.turn), None)
        self.accepted: float = own["at"] if own else self.kept.get("began") or self.layer.get("at") or 0.0
        self.began = self.kept["began"] - self.accepted if "began" in self.kept else None
        self._known = own is not None

    def layers(self) -> TurnLayers:
        requests = tuple(self._requests())
        calls = tuple(self._calls())
        texts = self.stored.texts
        return TurnLayers(
            turn=self._summary(len(calls)),
            missing=tuple(self._missing(requests)),
            events=tuple(self._events()),
            contexts=tuple(self._contexts()),
            route=self._route(),
            prompt=tuple(self._prompt()),
            tools=_json(texts.get(self.layer.get("tools", ""), "[]")),
            steps=tuple(self._step(row, content) for row, content in self.rows),
            requests=requests,
            calls=calls,
            reply=tuple(map(_part, self.stored.parts)),
            timeline=tuple(sorted(self._stages(requests, calls), key=lambda it: it.begin)),
        )

    def _summary(self, calls: int) -> TurnSummary:
        own = next((it for it in self.stored.messages if it["id"] == self.stored.turn), None)
        listed = ListedTurn(
            turn=self.stored.turn,
            sid=self.stored.sid,
            final=orjson.dumps(self.final).decode() if self.final else None,
            body=own["body"] if own else None,
            accepted=own["at"] if own else None,
            begun=bool(self.rows),
            name=next(iter(self.stored.names.values()), ""),
            person=self.layer.get("person", ""),
            outcome=self.layer.get("outcome") or (self.final or {}).get("outcome", ""),
            at=self.layer.get("at") or (self.final or {}).get("at"),
        )
        return summary(listed, self.zone).model_copy(update={"calls": calls})

    def _missing(self, requests: Sequence[RequestLayer]) -> Iterator[Missing]:
        if self.final is None:
            yield "running"
        elif not self.layer:
            yield "not-kept"
        if self.kept.get("recalled"):
            yield "recalled"
        elif self.layer and (self.kept.get("resumed") or any(it.begin is None for it in requests)):
            yield "resumed"
        if not self._known:
            yield "pruned"

    def _events(self) -> Iterator[EventLayer]:
        for row, inbound in self.inbounds:
            if inbound:
                yield EventLayer(at=iso(row["at"], self.zone), body=_json(inbound.event) if inbound.event else None)

    def _contexts(self) -> Iterator[dict[str, Any]]:
        for _, inbound in self.inbounds:
            for context in inbound.contexts if inbound else ():
                name = self.stored.names.get(context.message_id) or context.sender.name
                named = replace(context, sender=replace(context.sender, name=name))
                yield context_json.dump_python(named, mode="json")

    def _route(self) -> dict[str, Any]:
        route: dict[str, Any] = _json(self.stored.texts.get(self.layer.get("route", ""), "{}"))
        return route | ({"session": route["session"] | {"value": self.stored.sid}} if "session" in route else {})

    def _prompt(self) -> Iterator[SectionLayer]:
        name = self.layer.get("prompt", "")
        listed, texts = self.stored.texts.get(name, ""), self.stored.texts
        if hashes_in(name, listed):
            yield from (SectionLayer(**it, text=texts.get(it["hash"])) for it in _json(listed))
        for text in self.kept.get("own", ()):
            yield SectionLayer(heading=heading_of(text), chars=len(text), stable=False, hash="", text=text)

    def _step(self, row: Mapping[str, Any], content: Mapping[str, Any]) -> StepLayer:
        text = _text(content)
        return StepLayer(
            row=row["seq"],
            role=row["kind"],
            chars=len(text),
            text=text,
            metadata=content.get("metadata", ""),
            images=_images(content),
        )

    def _requests(self) -> Iterator[RequestLayer]:
        """The requests; of an earlier process, the journal has the answers alone, and they come first."""
        answers = [(it, row) for it, row in self.rows if it["kind"] == "assistant"]
        noted = self.kept.get("requests", ())
        stamps = {it.get("stamp") for it in noted}
        for number, (row, answer) in enumerate(answers, start=1):
            if answer.get("timestamp") not in stamps:
                rows = tuple(it["seq"] for it, _ in self.rows if it["seq"] < row["seq"])
                provider, model, response = answer.get("provider", ""), answer.get("model", ""), _response(answer)
                if provider:
                    yield RequestLayer(
                        round=number, state="answered", provider=provider, model=model, rows=rows, response=response
                    )
        for it in noted:
            found = next((pair for pair in answers if pair[1].get("timestamp") == it.get("stamp", 0)), None)
            yield self._request(it, found)

    def _request(
        self, it: Mapping[str, Any], answer: tuple[Mapping[str, Any], Mapping[str, Any]] | None
    ) -> RequestLayer:
        until = answer[0]["seq"] if answer else 2**62
        rows = tuple(row["seq"] for row, _ in self.rows if row["seq"] < until)[: it["own"]]
        tools = _json(self.stored.texts.get(self.layer.get("tools", ""), "[]"))
        options = {"maxTokens": it["max"], "thinking": it.get("think"), "toolChoice": it.get("choice", "auto")}
        held = HeldTurns(turns=it["held"], first=it.get("from"), last=it.get("to"), summary=it.get("summary", False))
        failed = (
            FailedAttempt(at=self._offset(it["at"] + one["at"]), error=one["error"], words=one["words"])
            for one in it.get("failed", ())
        )
        return RequestLayer(
            round=it["round"],
            state="failed" if it.get("error") else "answered" if "stop" in it else "running",
            provider=it["provider"],
            model=it["model"],
            begin=self._offset(it["at"]),
            seconds=it.get("s"),
            first_token_seconds=round(it["first"] - it["at"], 4) if "first" in it else None,
            options={name: value for name, value in options.items() if value is not None},
            tools=tuple(tool["name"] for tool in tools),
            tools_hash=self.layer.get("tools", ""),
            history=held,
            rows=rows,
            retries=tuple(failed),
            response=_response(answer[1]) if answer else _noted(it),
        )

    def _offset(self, seconds: float) -> float:
        return round((self.began or 0.0) + seconds, 4)

    def _calls(self) -> Iterator[CallLayer]:
        noted = list(self.kept.get("calls", ()))
        results = [(row, it) for row, it in self.rows if row["kind"] == "toolResult"]
        rounds = 0
        for row, answer in self.rows:
            if row["kind"] != "assistant":
                continue
            rounds += 1
            for part in (it for it in answer.get("content", ()) if it.get("type") == "toolCall"):
                found = next(
                    (it for it in results if it[1]["call_id"] == part["id"] and it[0]["seq"] > row["seq"]), None
                )
                timed: dict[str, Any] = next((it for it in noted if it["id"] == part["id"]), {})
                if found:
                    results.remove(found)
                if timed:
                    noted.remove(timed)
                yield self._call(part, found, timed, rounds)

    def _call(
        self,
        part: Mapping[str, Any],
        found: tuple[Mapping[str, Any], Mapping[str, Any]] | None,
        timed: Mapping[str, Any],
        number: int,
    ) -> CallLayer:
        row, result = found or ({"seq": None}, {})
        text, details = _text(result), result.get("details") or {}
        waits, failed = "approval" in details, result.get("is_error")
        return CallLayer(
            id=part["id"],
            round=timed.get("round") or number,
            tool=part["name"],
            state="running" if not found else "waiting" if waits else "failed" if failed else "done",
            arguments=part["arguments"] if part["arguments"] is not None else part["arguments_raw"],
            begin=self._offset(timed["at"]) if timed else None,
            seconds=timed.get("s"),
            row=row["seq"],
            result=text,
            images=_images(result),
            chars=timed.get("chars", len(text)),
            cut=timed.get("cut", False),
            external=bool(details.get("external")),
            details=details,
            approval=self._approval(details.get("approval")),
        )

    def _approval(self, named: Any) -> ApprovalLayer | None:
        for it in self.stored.approvals:
            if it["id"] == named:
                decided = iso(it["decided_at"], self.zone) if it["decided_at"] else None
                return ApprovalLayer(id=it["id"], state=it["state"], by=it["decided_by"] or "", at=decided)
        return None

    def _stages(self, requests: Sequence[RequestLayer], calls: Sequence[CallLayer]) -> Iterator[Stage]:
        if self.began is None:
            return
        if self.began > 0 and self._known:
            yield Stage(kind="waited", label="waited", begin=0.0, seconds=round(self.began, 4))
        begins = [it.begin for it in requests if it.begin is not None]
        ready = begins[0] if begins else self._offset(self.kept.get("ready") or 0.0)
        yield Stage(kind="prepared", label="prepared", begin=self._offset(0), seconds=round(ready - self._offset(0), 4))
        for request in requests:
            if request.begin is not None:
                failed = request.state == "failed"
                label, seconds = f"{request.provider}/{request.model}", request.seconds or 0.0
                yield Stage(kind="request", label=label, begin=request.begin, seconds=seconds, failed=failed)
                for it in request.retries:
                    yield Stage(kind="retry", label=it.error, begin=it.at, seconds=0.0, failed=True)
        for call in calls:
            if call.begin is not None:
                failed = call.state == "failed"
                yield Stage(kind="call", label=call.tool, begin=call.begin, seconds=call.seconds or 0.0, failed=failed)
        spans = [(it.begin, it.seconds) for it in requests] + [(it.begin, it.seconds) for it in calls]
        ends = [begin + (seconds or 0.0) for begin, seconds in spans if begin is not None]
        if ends and (at := self.layer.get("at")):
            last = max(ends)
            yield Stage(kind="reply", label="reply", begin=last, seconds=round(max(0.0, at - self.accepted - last), 4))


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}


def _text(content: Mapping[str, Any]) -> str:
    return "\n".join(it.get("text", "") for it in content.get("content", ()) if it.get("type") == "text")


def _images(content: Mapping[str, Any]) -> int:
    return sum(it.get("type") == "image" for it in content.get("content", ()))


def _response(answer: Mapping[str, Any]) -> ResponseLayer:
    """The response that the journal has."""
    parts, usage, error = answer.get("content", ()), answer.get("usage") or {}, answer.get("error") or {}
    return ResponseLayer(
        text=_text(answer),
        thinking="\n".join(it.get("text", "") for it in parts if it.get("type") == "thinking"),
        calls=tuple(it["id"] for it in parts if it.get("type") == "toolCall"),
        stop_reason=answer.get("stop_reason", ""),
        tokens=TurnTokens(**{name: usage.get(name, 0) for name in TurnTokens.model_fields}),
        estimated=bool(usage.get("estimated")),
        cost=answer.get("cost"),
        id=answer.get("response_id"),
        error=error.get("kind", ""),
    )


def _noted(it: Mapping[str, Any]) -> ResponseLayer | None:
    """The response that only the turn's own row knows: it failed, or said nothing."""
    if "stop" not in it:
        return None
    tokens = dict(zip(TurnTokens.model_fields, it["usage"], strict=True))
    return ResponseLayer(
        stop_reason=it["stop"],
        tokens=TurnTokens(**tokens),
        estimated=it.get("estimated", False),
        cost=it.get("cost"),
        id=it.get("id"),
        error=it.get("error", ""),
        words=it.get("words", ""),
    )


def _part(row: Mapping[str, Any]) -> PartLayer:
    part = _json(row["payload"]).get("part", {})
    return PartLayer(
        number=row["part"],
        state=_PART_STATES.get(row["status"], "queued"),
        text=part.get("text", ""),
        files=tuple(it["name"] for it in part.get("files", ())),
        buttons=tuple(it["label"] for it in part.get("buttons", ())),
        key=row["key"],
        platform_id=row["ext_id"],
        attempts=row["attempts"],
        ambiguous=row["ambiguous"],
        reason=row["reason"] or "",
        tool=row["part"] < 0,
    )
