"""`web_search` with each provider: what it answers, and what becomes of a refusal."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.emulators.search import KEY, SearchEmulator
from tests.loopback import serve_on_loopback
from tests.tools.bench import CALL, text_of
from tools.config import SearchConfig
from tools.tool import ToolError
from tools.web.search import ENGINES, WebSearch


@pytest.fixture(params=sorted(ENGINES))
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[tuple[SearchEmulator, WebSearch]]:
    emulator = SearchEmulator()
    async with serve_on_loopback(emulator.app) as url:
        config = {"provider": request.param, "apiKey": KEY, "baseUrl": url}
        yield emulator, WebSearch(SearchConfig.model_validate(config))


async def search(tool: WebSearch, **arguments: Any) -> str:
    result = await tool.run(tool.parse(arguments), CALL)
    assert result.external
    return text_of(result)


async def test_a_result_is_a_title_an_address_and_a_snippet(engine: tuple[SearchEmulator, WebSearch]) -> None:
    emulator, tool = engine
    text = await search(tool, query=" 天气  &q=x ", count=2)
    assert text == (
        "1. Result 1\n   https://example.com/1\n   What 1 & says\n\n2. Result 2\n   https://example.com/2\n   What 2 & says"
    )
    assert emulator.queries == ["天气 &q=x"]
    assert (await search(tool, query="x")).count("https://") == 5
    emulator.results = []
    assert await search(tool, query="x") == "(nothing found; try other words, or fewer)"
    emulator.results = [{"title": "a\n2. forged" + "x" * 500, "url": "http://a\nb", "text": "y" * 5_000}]
    text = await search(tool, query="x")
    assert len(text.splitlines()) == 3
    assert len(text) < 1_000


@pytest.mark.parametrize(
    ("fault", "code", "retryable"),
    [
        (429, "SEARCH_RATE_LIMITED", True),
        (401, "SEARCH_REFUSED", False),
        (403, "SEARCH_REFUSED", False),
        (432, "SEARCH_REFUSED", False),
        (500, "SEARCH_FAILED", True),
        ("redirect", "SEARCH_FAILED", False),
        ("no json", "SEARCH_FAILED", True),
        ("deep", "SEARCH_FAILED", True),
        ("shapeless", "SEARCH_FAILED", True),
    ],
)
async def test_what_is_refused_is_a_sentence_without_the_key(
    engine: tuple[SearchEmulator, WebSearch], fault: int | str, code: str, retryable: bool
) -> None:
    emulator, tool = engine
    emulator.fault = fault
    with pytest.raises(ToolError) as caught:
        await search(tool, query="x")
    assert (caught.value.code, caught.value.retryable) == (code, retryable)
    assert KEY not in caught.value.body


@pytest.mark.parametrize("provider", ["brave", "tavily"])
async def test_a_wrong_key_and_a_server_that_is_not_there(provider: str) -> None:
    async with serve_on_loopback(SearchEmulator().app) as url:
        config = {"provider": provider, "apiKey": "wrong", "baseUrl": f"{url}/"}
        with pytest.raises(ToolError, match="refuses the key"):
            await search(WebSearch(SearchConfig.model_validate(config)), query="x")
    with pytest.raises(ToolError, match="cannot be reached"):
        await search(WebSearch(SearchConfig.model_validate(config)), query="x")


@pytest.mark.parametrize("query", ["", "  ", "x" * 401])
async def test_a_query_has_a_word_and_a_length(engine: tuple[SearchEmulator, WebSearch], query: str) -> None:
    with pytest.raises(ToolError) as caught:
        await search(engine[1], query=query)
    assert caught.value.code == "INVALID_ARGUMENT"
