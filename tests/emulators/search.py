"""The search providers that `web_search` knows, as strict as they are: Brave, Tavily and SearXNG on loopback.

What a request must be, and what an answer and a refusal look like, is the providers' own documentation's.
"""

from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

KEY = "canary-search-key-91827"
RESULTS = [
    {
        "title": f"Result {number}",
        "url": f"https://example.com/{number}",
        "text": f"What <strong>{number}</strong> &amp; says",
    }
    for number in range(1, 31)
]


@dataclass
class SearchEmulator:
    """`queries` as they arrived. `fault` answers instead: a status, `redirect`, `no json`, `deep` or `shapeless`."""

    results: list[dict[str, str]] = field(default_factory=lambda: list(RESULTS))
    queries: list[str] = field(default_factory=list)
    fault: int | str | None = None

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/res/v1/web/search", self._brave, methods=["GET"]),
                Route("/search", self._searxng, methods=["GET"]),
                Route("/search", self._tavily, methods=["POST"]),
            ]
        )

    async def _brave(self, request: Request) -> Response:
        if request.headers.get("x-subscription-token") != KEY:
            return _brave_error(422, "SUBSCRIPTION_TOKEN_INVALID")
        query, count = request.query_params.get("q", ""), request.query_params.get("count", "20")
        if not 0 < len(query) <= 400 or not count.isdecimal() or not 1 <= int(count) <= 20:
            return _brave_error(422, "VALIDATION")
        if set(request.query_params) - {"q", "count", "offset", "text_decorations", "safesearch", "country"}:
            return _brave_error(422, "VALIDATION")
        found = [_named(it, "description") | {"type": "search_result"} for it in self.results[: int(count)]]
        answer = {"type": "search", "query": {"original": query}, "web": {"type": "search", "results": found}}
        return self._answer(query, answer, _brave_error(429, "RATE_LIMITED"))

    async def _tavily(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return JSONResponse({"detail": {"error": "Unauthorized: missing or invalid API key."}}, 401)
        body = await request.json()
        if not isinstance(body.get("query"), str) or not 0 <= body.get("max_results", 5) <= 20:
            return JSONResponse({"detail": {"error": "Invalid request"}}, 400)
        found = [_named(it, "content") | {"score": 0.9} for it in self.results[: body.get("max_results", 5)]]
        answer = {"query": body["query"], "images": [], "results": found, "response_time": 0.1}
        return self._answer(body["query"], answer, JSONResponse({"detail": {"error": "rate limit"}}, 429))

    async def _searxng(self, request: Request) -> Response:
        if request.query_params.get("format") != "json":
            return PlainTextResponse("<html>", 200)
        query = request.query_params.get("q", "")
        if not query:
            return PlainTextResponse("No query", 400)
        found = [_named(it, "content") | {"engine": "duckduckgo"} for it in self.results]
        answer = {"query": query, "number_of_results": 0, "results": found, "answers": [], "suggestions": []}
        return self._answer(query, answer, PlainTextResponse("Too many requests", 429))

    def _answer(self, query: str, answer: dict[str, Any], limited: Response) -> Response:
        self.queries.append(query)
        match self.fault:
            case None:
                return JSONResponse(answer)
            case 429:
                return limited
            case int(status):
                return PlainTextResponse(f"error {KEY}", status)
            case "redirect":
                return RedirectResponse("http://127.0.0.1:1/", 302)
            case "deep":
                return PlainTextResponse("[" * 100_000)
            case "no json":
                return PlainTextResponse("<html>")
            case _:
                return JSONResponse({"results": [{"no": "url"}], "web": {"results": "none"}})


def _named(result: dict[str, str], snippet: str) -> dict[str, Any]:
    return {"title": result["title"], "url": result["url"], snippet: result["text"]}


def _brave_error(status: int, code: str) -> Response:
    error = {"id": "x", "status": status, "code": code, "detail": "The request was refused."}
    return JSONResponse({"type": "ErrorResponse", "error": error, "time": 1}, status)
