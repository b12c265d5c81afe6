"""One turn layer by layer, for the operator, as its row, the journal, the inbox and the outbox tell it.

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
from gateway.config.root import Config
from gateway.observe.secrets import Mask
from gateway.operate.turn_layers import (
    ApprovalLayer,
    CallLayer,
    EventLayer,
    FailedAttempt,
    HeldTurns,
    Missing,
    RequestLayer,
    SectionLayer,
    Stage,
    StepLayer,
    TurnLayers,
    TurnList,
    TurnSummary,
)
from gateway.operate.turn_list import read_inbound, summary
from gateway.operate.turn_rows import images_of, json_of, part_of, response_noted, response_of, text_of
from gateway.store.layers import DatabaseLayers, ListedTurn, StoredTurn, hashes_in
from gateway.turns.layers import heading_of

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
