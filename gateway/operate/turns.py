"""Turns for the operator: the list of them, one layer by layer, and the lines of it that a terminal prints.

Nothing is guessed: what no row has is missing in the answer, which says why. Texts are scrubbed once more on the way out.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Any

import orjson
from pydantic import TypeAdapter

from channels.message import MessageContext
from channels.moment import iso
from gateway.config.root import Config
from gateway.observe.secrets import REDACTED, Mask
from gateway.operate.sessions import short
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
from gateway.store.inbound import Inbound, inbound_of, is_readable
from gateway.store.layers import FILTERS, TURNS_MAX, DatabaseLayers, ListedTurn, StoredTurn, hashes_in
from gateway.store.sessions import person_of, session_parts
from gateway.store.statements import OutboxStatus
from gateway.turns.layers import heading_of

PREVIEW_CHARS = 200
OPEN = ("waiting", "running")
"""Outcomes of turns that have none yet."""
AT_ONCE, SEARCHED_MAX = 500, 5_000
"""Turns that a search reads at once, and in all for one page."""


async def turn_list(layers: DatabaseLayers, *, before: int | None, only: Mapping[str, str], config: Config) -> TurnList:
    """The newest turns below `before` that are as `only` says: agent, channel, person (an id or a name), outcome, and
    words of the message, or of a name or title."""
    zone = config.server.zone
    exact, sought = {name: only[name] for name in FILTERS if only.get(name)}, _Sought.of(only)
    if sought.name:
        del exact["person"]
    unfinished = await _unfinished(layers, exact, sought, zone) if before is None else []
    turns: list[TurnSummary] = []
    searched, more, limit = 0, exact.get("outcome") not in OPEN, AT_ONCE if sought else TURNS_MAX
    while more and len(turns) < TURNS_MAX and searched < SEARCHED_MAX:
        read = await layers.listed(before=before, only=exact, limit=limit)
        more = len(read) == limit
        for it in read:
            before, searched = it.turn, searched + 1
            if sought.is_in(it, shown := summary(it, zone)):
                turns.append(shown)
            if len(turns) == TURNS_MAX:
                more = more or it is not read[-1]
                break
    return TurnList(
        turns=(*unfinished, *turns),
        before=before if more else None,
        keep_days=config.console.keep_days,
        currency=config.currency,
        searched=searched if sought else 0,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sought:
    """A search that no index knows: words, and a person's name."""

    words: Sequence[str]
    name: str

    @classmethod
    def of(cls, only: Mapping[str, str]) -> "_Sought":
        person = only.get("person", "")
        return cls(words=only.get("words", "").casefold().split(), name="" if ":" in person else person.casefold())

    def __bool__(self) -> bool:
        return bool(self.words or self.name)

    def is_in(self, turn: ListedTurn, shown: TurnSummary) -> bool:
        if self.name not in shown.name.casefold():
            return False
        inbound = read_inbound(turn.body or "") if self.words else None
        texts = (shown.name, shown.person, shown.title, shown.chat, inbound.context.text if inbound else "")
        text = "\n".join(texts).casefold()
        return all(it in text for it in self.words)


async def _unfinished(
    layers: DatabaseLayers, exact: Mapping[str, str], sought: _Sought, zone: tzinfo
) -> Sequence[TurnSummary]:
    if exact.get("outcome", "running") not in OPEN:
        return []
    turns = [(it, summary(it, zone)) for it in await layers.unfinished()]
    meant = (it for it in turns if all(getattr(it[1], name) == wanted for name, wanted in exact.items()))
    return [shown for it, shown in meant if sought.is_in(it, shown)]


def summary(turn: ListedTurn, zone: tzinfo) -> TurnSummary:
    place, final = session_parts(turn.sid), orjson.loads(turn.final) if turn.final else {}
    inbound = read_inbound(turn.body or "")
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
        title=turn.title or (inbound.context.chat.title or "" if inbound else ""),
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


def read_inbound(body: str) -> Inbound | None:
    return inbound_of(body) if body and is_readable(body) else None


STEPS = ("user", "steered", "assistant", "toolResult")
context_json: TypeAdapter[MessageContext] = TypeAdapter(MessageContext)


async def turn_layers(layers: DatabaseLayers, turn: int, config: Config) -> TurnLayers | None:
    """One turn; None if the number is unknown."""
    stored = await layers.get(turn)
    return _Reading(stored, config.server.zone, config.currency).layers() if stored else None


def scrubbed(shown: TurnLayers | TurnList, scrub: Callable[[str], str]) -> dict[str, Any]:
    """Return the JSON without secrets; `masked` counts keys of a known shape. Takes milliseconds for a long turn."""
    mask = Mask(scrub)
    clean: dict[str, Any] = cleaned(shown.model_dump(by_alias=True), mask)
    return clean | {"masked": mask.count}


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
    currency: str

    def __post_init__(self) -> None:
        self.layer = self.stored.layer or {}
        self.kept: Mapping[str, Any] = orjson.loads(self.layer.get("content", "{}"))
        self.final = next((json_of(it["content"]) for it in self.stored.rows if it["kind"] == "final"), None)
        self.rows = [(it, json_of(it["content"])) for it in self.stored.rows if it["kind"] in STEPS]
        self.inbounds = [(it, read_inbound(it["body"])) for it in self.stored.messages]
        self.own = next((it for it in self.stored.messages if it["id"] == self.stored.turn), None)
        self.accepted: float = self.own["at"] if self.own else self.kept.get("began") or self.layer.get("at") or 0.0
        self.began = self.kept["began"] - self.accepted if "began" in self.kept else None

    def layers(self) -> TurnLayers:
        requests = tuple(self._requests())
        calls = tuple(self._calls())
        texts = self.stored.texts
        return TurnLayers(
            turn=self._summary(len(calls)),
            currency=self.currency,
            missing=tuple(self._missing(requests)),
            events=tuple(self._events()),
            contexts=tuple(self._contexts()),
            route=self._route(),
            prompt=tuple(self._prompt()),
            tools=json_of(texts.get(self.layer.get("tools", ""), "[]")),
            steps=tuple(self._step(row, content) for row, content in self.rows),
            requests=requests,
            calls=calls,
            reply=tuple(map(part_of, self.stored.parts)),
            timeline=self._timeline(requests, calls),
        )

    def _summary(self, calls: int) -> TurnSummary:
        own = self.own
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
            title=self.stored.title,
        )
        return summary(listed, self.zone).model_copy(update={"calls": calls})

    def _timeline(self, requests: Sequence[RequestLayer], calls: Sequence[CallLayer]) -> tuple[Stage, ...]:
        """The stages by their begin; empty if the turn's row does not say when it began."""
        if self.began is None:
            return ()
        stages, begun, at = [], self._offset(0), self.layer.get("at")
        if self.own and self.began > 0:
            stages.append(Stage(kind="waited", label="waited", begin=0.0, seconds=round(self.began, 4)))
        ready = next((it.begin for it in requests if it.begin is not None), self._offset(self.kept.get("ready") or 0.0))
        stages.append(Stage(kind="prepared", label="prepared", begin=begun, seconds=round(ready - begun, 4)))
        timed = [*_stages_of_requests(requests), *_stages_of_calls(calls)]
        stages += timed
        if at and timed:
            last = max(it.begin + it.seconds for it in timed)
            seconds = round(max(0.0, at - self.accepted - last), 4)
            stages.append(Stage(kind="reply", label="reply", begin=last, seconds=seconds))
        return tuple(sorted(stages, key=lambda it: it.begin))

    def _missing(self, requests: Sequence[RequestLayer]) -> Iterator[Missing]:
        if self.final is None:
            yield "running"
        elif not self.layer:
            yield "not-kept"
        if self.kept.get("recalled"):
            yield "recalled"
        elif self.layer and (self.kept.get("resumed") or any(it.begin is None for it in requests)):
            yield "resumed"
        if self.own is None:
            yield "pruned"

    def _events(self) -> Iterator[EventLayer]:
        for row, inbound in self.inbounds:
            if inbound:
                yield EventLayer(at=iso(row["at"], self.zone), body=json_of(inbound.event) if inbound.event else None)

    def _contexts(self) -> Iterator[dict[str, Any]]:
        for _, inbound in self.inbounds:
            for context in inbound.contexts if inbound else ():
                name = self.stored.names.get(context.message_id) or context.sender.name
                named = replace(context, sender=replace(context.sender, name=name))
                yield context_json.dump_python(named, mode="json")

    def _route(self) -> dict[str, Any]:
        route: dict[str, Any] = json_of(self.stored.texts.get(self.layer.get("route", ""), "{}"))
        return route | ({"session": route["session"] | {"value": self.stored.sid}} if "session" in route else {})

    def _prompt(self) -> Iterator[SectionLayer]:
        name = self.layer.get("prompt", "")
        listed, texts = self.stored.texts.get(name, ""), self.stored.texts
        if hashes_in(name, listed):
            yield from (SectionLayer(**it, text=texts.get(it["hash"])) for it in json_of(listed))
        for text in self.kept.get("own", ()):
            yield SectionLayer(heading=heading_of(text), chars=len(text), stable=False, hash="", text=text)

    def _step(self, row: Mapping[str, Any], content: Mapping[str, Any]) -> StepLayer:
        text = text_of(content)
        return StepLayer(
            row=row["seq"],
            role=row["kind"],
            chars=len(text),
            text=text,
            metadata=content.get("metadata", ""),
            images=images_of(content),
        )

    def _requests(self) -> Iterator[RequestLayer]:
        """The requests; of an earlier process, the journal has the answers alone, and they come first."""
        answers = [(it, row) for it, row in self.rows if it["kind"] == "assistant"]
        noted = self.kept.get("requests", ())
        stamps = {it.get("stamp") for it in noted}
        for number, (row, answer) in enumerate(answers, start=1):
            if answer.get("timestamp") not in stamps:
                rows = tuple(it["seq"] for it, _ in self.rows if it["seq"] < row["seq"])
                provider, model, response = answer.get("provider", ""), answer.get("model", ""), response_of(answer)
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
        tools = json_of(self.stored.texts.get(self.layer.get("tools", ""), "[]"))
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
            response=response_of(answer[1]) if answer else response_noted(it),
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
        text, details = text_of(result), result.get("details") or {}
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
            images=images_of(result),
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


def _stages_of_requests(requests: Sequence[RequestLayer]) -> Iterator[Stage]:
    for it in requests:
        if it.begin is not None:
            label, seconds, failed = f"{it.provider}/{it.model}", it.seconds or 0.0, it.state == "failed"
            yield Stage(kind="request", label=label, begin=it.begin, seconds=seconds, failed=failed)
            for one in it.retries:
                yield Stage(kind="retry", label=one.error, begin=one.at, seconds=0.0, failed=True)


def _stages_of_calls(calls: Sequence[CallLayer]) -> Iterator[Stage]:
    for it in calls:
        if it.begin is not None:
            failed = it.state == "failed"
            yield Stage(kind="call", label=it.tool, begin=it.begin, seconds=it.seconds or 0.0, failed=failed)


_PART_STATES: Mapping[int, Any] = {
    OutboxStatus.QUEUED: "queued",
    OutboxStatus.SENT: "sent",
    OutboxStatus.FAILED: "failed",
}


def json_of(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}


def text_of(content: Mapping[str, Any]) -> str:
    return "\n".join(it.get("text", "") for it in content.get("content", ()) if it.get("type") == "text")


def images_of(content: Mapping[str, Any]) -> int:
    return sum(it.get("type") == "image" for it in content.get("content", ()))


def response_of(answer: Mapping[str, Any]) -> ResponseLayer:
    """The response that the journal has."""
    parts, usage, error = answer.get("content", ()), answer.get("usage") or {}, answer.get("error") or {}
    return ResponseLayer(
        text=text_of(answer),
        thinking="\n".join(it.get("text", "") for it in parts if it.get("type") == "thinking"),
        calls=tuple(it["id"] for it in parts if it.get("type") == "toolCall"),
        stop_reason=answer.get("stop_reason", ""),
        tokens=TurnTokens(**{name: usage.get(name, 0) for name in TurnTokens.model_fields}),
        estimated=bool(usage.get("estimated")),
        cost=answer.get("cost"),
        id=answer.get("response_id"),
        error=error.get("kind", ""),
    )


def response_noted(it: Mapping[str, Any]) -> ResponseLayer | None:
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


def part_of(row: Mapping[str, Any]) -> PartLayer:
    part = json_of(row["payload"]).get("part", {})
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


_MISSING = {
    "running": "it has not ended yet",
    "not-kept": "its layers were not kept; this is what the journal has",
    "resumed": "a process ended while it worked on the turn: times and options of its requests are gone",
    "recalled": "its message was taken back",
    "pruned": "the inbox has forgotten its message",
}


def lines(turn: Mapping[str, Any], money: Callable[[float], str]) -> Iterator[str]:
    """The layers in the order in which the message passed them."""
    facts = turn["turn"]
    took = "" if facts["seconds"] is None else f" after {facts['seconds']:.2f} s"
    reason = f" ({facts['reason']})" if facts["reason"] else ""
    yield f"Turn {facts['id']}  {facts['at']}  {facts['session']}"
    yield f"{facts['outcome']}{reason}{took}"
    yield from (f"! {_MISSING[it]}" for it in turn["missing"])
    if count := turn["masked"]:
        yield f"! {count} {'key is' if count == 1 else 'keys are'} masked as {REDACTED}"
    yield from _layer(
        "event", [short(json.dumps(it["body"], ensure_ascii=False)) for it in turn["events"] if it["body"]]
    )
    yield from _layer(
        "context", [f"{it['sender']['name'] or it['sender']['id']}: {short(it['text'])}" for it in turn["contexts"]]
    )
    yield from _layer(
        "route", [f"{name}: {_value(it['value'])} — {it['reason']}" for name, it in turn["route"].items()]
    )
    sections = [f"{it['heading'] or '(identity)'}: {it['chars']:,} characters" for it in turn["prompt"]]
    yield from _layer("prompt", sections)
    yield from _layer("requests", [line for it in turn["requests"] for line in _request(it, money)])
    yield from _layer("tool calls", [line for it in turn["calls"] for line in _call(it)])
    yield from _layer("reply", [_part(it) for it in turn["reply"]])
    yield from _layer("timeline", [_stage(it) for it in turn["timeline"]])


def _layer(name: str, texts: Sequence[str]) -> Iterator[str]:
    if texts:
        yield from ("", name)
        yield from (f"  {line}" for line in texts)


def _request(it: Mapping[str, Any], money: Callable[[float], str]) -> Iterator[str]:
    took = "" if it["seconds"] is None else f" in {it['seconds']:.2f} s"
    held = f"{it['history']['turns']} earlier turns, " if it["history"]["turns"] else ""
    yield f"{it['round']}. {it['provider']}/{it['model']}: {it['state']}{took}; {held}{len(it['rows'])} messages of its own"
    yield from (f"   attempt failed: {one['error']} {short(one['words'])}" for one in it["retries"])
    if answer := it["response"]:
        tokens = answer["tokens"]
        read = tokens["input"] + tokens["cacheRead"] + tokens["cacheWrite"]
        cost = "" if answer["cost"] is None else f", cost {money(answer['cost'])}"
        how = f"{answer['stopReason']} {answer['error']}".strip()
        yield f"   {how}; {read:,} tokens in, {tokens['output']:,} out{cost}"


def _call(it: Mapping[str, Any]) -> Iterator[str]:
    took = "" if it["seconds"] is None else f" in {it['seconds']:.2f} s"
    cut = f", cut from {it['chars']:,} characters" if it["cut"] else ""
    yield f"{it['tool']} {short(json.dumps(it['arguments'], ensure_ascii=False))}"
    yield f"   {it['state']}{took}{cut}: {short(it['result'])}"
    if it["approval"]:
        yield f"   approval {it['approval']['id']}: {it['approval']['state']} {it['approval']['by']}".rstrip()


def _part(it: Mapping[str, Any]) -> str:
    return f"{it['state']} {it['platformId'] or ''} ({it['attempts']} attempts failed): {short(it['text'])}"


def _stage(it: Mapping[str, Any]) -> str:
    return f"{it['begin']:8.3f} s  {it['seconds']:8.3f} s  {it['label']}{' ✗' if it['failed'] else ''}"


def _value(value: Any) -> str:
    return " ".join(value) if isinstance(value, list) else str(value or "none")
