"""The console's routes to what was said and done: the sessions of all channels, and the turns, layer by layer."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response

from channels.web.views import html
from gateway.http.request import PersonRoute, Unserved, answer_json, id_in_path, number_of
from gateway.observe.secrets import Mask
from gateway.operate.clipped import PIECE_CHARS, brief, clipped, text_at
from gateway.operate.sessions import found as found_session
from gateway.operate.sessions import markdown, named, newest, place_facts, read, summary
from gateway.operate.turns import scrubbed, turn_layers, turn_list
from gateway.state.runtime import Runtime
from gateway.store.conversations import Session
from gateway.web.listing import page_of

SHOWN_CHARS = 100_000
"""Characters of a session that are shown, from its end: the newest is what an operator looks for."""
NO_SUCH_SESSION = 404, "no-such-session", "There is no such session."
NO_SUCH_TURN = 404, "no-such-turn", "There is no such turn."
NO_SUCH_TEXT = 404, "no-such-text", "There is no such text in this turn."


class Book:
    """Routes of `gateway.web.door`; each gets the operator."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def routes(self) -> Sequence[tuple[str, str, PersonRoute]]:
        return (
            ("GET", "/api/sessions", self.sessions),
            ("GET", "/api/sessions/{session}", self.session),
            ("GET", "/api/turns", self.turns),
            ("GET", "/api/turns/{turn}", self.turn),
            ("GET", "/api/turns/{turn}/text", self.text),
        )

    async def sessions(self, request: Request, person: str) -> Response:
        """The sessions of every channel, the one with the newest message first, a page of them."""
        return answer_json(await asyncio.to_thread(self._sessions, dict(request.query_params)))

    def _sessions(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Looks for the words in all sessions' places and names, and reads the sessions of the page alone."""
        config = self._runtime.setup.config
        found, names, scrub = newest(config), named(config), self._runtime.scrubber.scrub
        known = {}

        def view(session: Session) -> dict[str, Any]:
            place = place_facts(session) | {"name": scrub(names.chat(session.sid)), "sid": session.sid}
            known[place["id"]] = session
            return place

        shown = page_of(found, query, view)
        sessions = read(config, [known[it["id"]] for it in shown["rows"]])
        rows = zip(sessions, shown.pop("rows"), strict=True)
        return {"sessions": [summary(session, config.server.zone) | row for session, row in rows]} | shown

    async def session(self, request: Request, person: str) -> Response:
        read = await asyncio.to_thread(self._read, id_in_path(request, "session"))
        if read is None:
            raise Unserved(*NO_SUCH_SESSION)
        return answer_json(read)

    def _read(self, name: str) -> dict[str, Any] | None:
        config = self._runtime.setup.config
        if (read := found_session(config, name)) is None:
            return None
        session, entries, marks = read
        zone = config.server.zone
        mask = Mask(self._runtime.scrubber.scrub)
        text = mask("\n".join(markdown(session, entries, marks, zone)))
        names = named(config)
        facts = summary(session, zone) | {"name": self._runtime.scrubber.scrub(names.chat(session.sid))}
        shown, missing = html(text[-SHOWN_CHARS:]), max(0, len(text) - SHOWN_CHARS)
        return {"session": brief(facts), "html": shown, "missing": missing, "masked": mask.count}

    async def turns(self, request: Request, person: str) -> Response:
        """The newest turns of every channel, filtered."""
        config, query = self._runtime.setup.config, dict(request.query_params)
        layers, before = self._runtime.store.layers, number_of(query.get("before", ""))
        page = await turn_list(layers, before=before, only=query, config=config)
        return answer_json(await asyncio.to_thread(lambda: brief(scrubbed(page, self._runtime.scrubber.scrub))))

    async def turn(self, request: Request, person: str) -> Response:
        whole = await self._whole(request)
        return answer_json(await asyncio.to_thread(clipped, whole, self._runtime.scrubber.scrub))

    async def text(self, request: Request, person: str) -> Response:
        """A text of the turn's layers: whole as a file, or a piece from the character that `from` names."""
        query = request.query_params
        whole = await self._whole(request)
        text = await asyncio.to_thread(text_at, whole, query.get("at", ""), self._runtime.scrubber.scrub)
        if text is None:
            raise Unserved(*NO_SUCH_TEXT)
        if (begin := number_of(query.get("from", ""))) is not None:
            return answer_json({"text": text[begin : begin + PIECE_CHARS], "chars": len(text)})
        name = quote(f"turn-{request.path_params['turn']}{query['at'].replace('/', '-')}.txt", safe="")
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}", "cache-control": "no-store"}
        headers |= {"content-security-policy": "default-src 'none'; sandbox"}
        return Response(text, headers=headers, media_type="text/plain")

    async def _whole(self, request: Request) -> dict[str, Any]:
        number, config = number_of(request.path_params["turn"]), self._runtime.setup.config
        turn = None if number is None else await turn_layers(self._runtime.store.layers, number, config)
        if turn is None:
            raise Unserved(*NO_SUCH_TURN)
        return turn.model_dump(by_alias=True)
