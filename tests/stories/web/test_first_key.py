"""The first key of a model, pasted into the operator's page: tried, written beside the config, and in force."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.keyless import AGENTS, KEY, MODEL, Keyless, keyless
from tests.web_page import opened

PATH = "/api/setup/key"
GIVEN = {"vendor": "deepseek", "key": KEY}
USERS = f"server: {{ host: 0.0.0.0, adminToken: {'o' * 40}, users: {{ ann: {'a' * 40} }} }}"


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.app.serve.LOOK_SECONDS", 0.05)


async def give(house: Keyless, given: Any = None, **headers: str) -> tuple[int, str]:
    async with opened(house.url, watching=False, **headers) as page:
        answer = await page.http.post(PATH, json=given or GIVEN)
    assert KEY not in answer.text
    return answer.status_code, str(answer.json().get("code", ""))


async def wanted(house: Keyless, **headers: str) -> list[str]:
    async with opened(house.url, watching=False, **headers) as page:
        return [it["vendor"] for it in (await page.http.get("/api/chats")).json()["keys"]]


async def test_first_key_is_tried_stored_and_in_force(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("MINE=1")  # without a newline, and open to others
    async with keyless(tmp_path, env={"DEEPSEEK_API_KEY": ""}) as house, opened(house.url) as page:
        assert {"anthropic", "openai", "deepseek"} <= set(await wanted(house))
        with capture_logs() as logs:
            answer = await page.http.post(PATH, json={**GIVEN, "key": f" {KEY}\n"})
        assert (answer.status_code, answer.json()) == (200, {"model": MODEL})
        assert KEY not in json.dumps(logs, default=str)
        assert house.dotenv.read_text() == f"MINE=1\nDEEPSEEK_API_KEY='{KEY}'\n"
        assert stat.S_IMODE(house.dotenv.stat().st_mode) == 0o600
        await page.say("who are you?")
        assert await page.answers(1) == ["I am real."]
        assert house.vendor.requests[-1].refusal is None
        assert await wanted(house) == []
        assert await give(house) == (409, "key-not-wanted")
        assert house.dotenv.read_text().count("DEEPSEEK") == 1


BAD_KEYS = ["", "two words", "a\nEVIL=1", "a'b", 'a"\\', "x" * 1001, "键", "a\x00b", "a\rb"]


NO_GOOD: list[tuple[dict[str, Any], tuple[int, str]]] = [
    ({"vendor": "deepseek", "key": "not-the-key"}, (422, "key-refused")),
    ({"vendor": "nobody", "key": KEY}, (409, "key-not-wanted")),
    ({"vendor": "openrouter", "key": KEY}, (409, "key-not-wanted")),
    ({"vendor": "deepseek", "key": "x" * 20_000}, (413, "unreadable")),
    ({"vendor": "deepseek"}, (400, "unreadable")),
    ({"vendor": "deepseek", "key": 1}, (400, "unreadable")),
    ({**GIVEN, "variable": "PATH"}, (400, "unreadable")),
    *(({"vendor": "deepseek", "key": key}, (422, "key-malformed")) for key in BAD_KEYS),
]


async def test_first_key_that_fails_is_stored_nowhere(tmp_path: Path) -> None:
    async with keyless(tmp_path) as house:
        for given, answer in NO_GOOD:
            assert await give(house, given) == answer, str(given)[:100]
            assert not house.dotenv.exists(), str(given)[:100]
            assert "deepseek" in await wanted(house), str(given)[:100]


async def test_first_key_obstacles_have_sentences_and_leave_nothing(tmp_path: Path) -> None:
    async with keyless(tmp_path) as house:
        house.dotenv.mkdir()
        assert await give(house) == (409, "key-unwritten")
        house.dotenv.rmdir()
        config = tmp_path / "config.yaml"
        good = config.read_text()
        port = good.partition("127.0.0.1:")[2].partition("/")[0]
        config.write_text(good.replace(f"127.0.0.1:{port}", "127.0.0.1:9"))  # nobody listens at the discard port
        assert await give(house) == (422, "vendor-unreachable")
        config.write_text(f"{good}\nnonsense: 1\n")
        assert await give(house) == (409, "config-broken")
        config.write_text(good)
        assert await wanted(house)
        assert not house.dotenv.exists()


async def test_first_key_is_not_taken_for_an_unused_vendor(tmp_path: Path) -> None:
    async with keyless(tmp_path, agents=AGENTS.replace("name:", "model: demo/guide, name:")) as house:
        assert await give(house) == (409, "key-unused")
        assert not house.dotenv.exists()


async def test_first_key_is_that_of_the_agents_vendor(tmp_path: Path) -> None:
    async with keyless(tmp_path, agents=AGENTS.replace("name:", f"model: {MODEL}, name:")) as house:
        assert await wanted(house) == ["deepseek"]
        assert await give(house, {"vendor": "openai", "key": KEY}) == (409, "key-not-wanted")
        assert await give(house) == (200, "")


async def test_first_key_needs_the_operator_on_the_same_site(tmp_path: Path) -> None:
    async with keyless(tmp_path, more=USERS) as house:
        ann, operator = {"authorization": f"Bearer {'a' * 40}"}, {"authorization": f"Bearer {'o' * 40}"}
        assert (await wanted(house, **ann), "deepseek" in await wanted(house, **operator)) == ([], True)
        assert await give(house, **ann) == (403, "operator-only")
        assert (await give(house))[0] == 401
        assert (await give(house, **operator, origin="https://evil.example"))[0] == 403
        assert (await give(house, **operator, sec_fetch_site="cross-site"))[0] == 403
        async with opened(house.url, watching=False, **operator) as page:
            del page.http.headers["x-clawgate"]
            assert (await page.http.post(PATH, json=GIVEN)).status_code == 403
            page.http.headers["x-clawgate"] = "1"
            form = {"content-type": "text/plain"}
            assert (await page.http.post(PATH, content=json.dumps(GIVEN), headers=form)).status_code == 415
        assert not house.dotenv.exists()


@pytest.mark.parametrize(("owner", "offered"), [("telegram:123", False), ("web:local", True)])
async def test_first_key_is_not_offered_when_owners_are_elsewhere(tmp_path: Path, owner: str, offered: bool) -> None:
    async with keyless(tmp_path, more=f'owners: ["{owner}"]') as house:
        assert bool(await wanted(house)) is offered
        assert await give(house) == ((200, "") if offered else (409, "key-not-wanted"))
        assert house.dotenv.exists() is offered
