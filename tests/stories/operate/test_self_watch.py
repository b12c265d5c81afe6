"""The gateway watches itself: two misses in a row tell the owners once, whatever restarts meanwhile, and so does the end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from channels.moment import day
from gateway.config.load import load
from gateway.config.root import WatchConfig
from gateway.later.watched import Watched, seen, seen_in
from gateway.operate.doctor import examine
from gateway.store.errors import StoreUnavailable
from gateway.store.later import WATCH
from tests.chaos.replica import free_port
from tests.emulators.models.script import says
from tests.emulators.telegram.delivery import Pending
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.loopback import serve_on_loopback
from tests.running import ALICE, SECRETS, Running, client, feishu_emulator, running
from tests.stories.config.test_reload import edited
from tests.stories.operate.test_health import TOKEN, bot
from tests.stories.outbox.test_notices import told
from tests.stories.store.test_replicas import two

OWNED = f'owners: ["feishu:{ALICE}"]\nwatch: {{ every: 15m }}'
MODEL = OWNED.replace("15m", "15m, model: true")
REFUSED = {
    "en": "`feishu:default` failed its last checks: ",
    "zh": "`feishu:default` 连续几次检查失败：",
}


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.app.selfwatch.SETTLED_SECONDS", 0.0)


async def look(house: Running) -> dict[str, Watched]:
    """What it has seen once a round is over, which is due now."""
    later, watch = house.gateway.runtime.store.later, house.gateway.watch

    async def is_there() -> bool:
        return bool(await later.of_id(WATCH))

    await house.until(is_there)
    (row,) = await later.of_id(WATCH)
    await later.hasten(WATCH, house.gateway.runtime.now())
    house.gateway.wake()

    async def is_over() -> bool:
        (now,) = await later.of_id(WATCH)
        return bool(now.due and row.due and now.due > row.due) and not watch.busy

    await house.until(is_over)
    return await seen(house.gateway.runtime)


@pytest.mark.parametrize(("language", "back"), [("en", "is working again."), ("zh", "已恢复正常。")])
async def test_self_watch_tells_a_revoked_secret_and_its_end_once(
    tmp_path: Path, database_url: str, language: str, back: str
) -> None:
    more = f'{OWNED}\nlanguage: {language}\ndatabase: {{ url: "{database_url}" }}'
    emulator, right = feishu_emulator(), SECRETS["FEISHU_APP_SECRET"]
    async with running(tmp_path, more=more, emulator=emulator) as house:
        assert (await look(house))["feishu:default"].misses == 0
        emulator.app_secret = "another"
        assert (await look(house))["feishu:default"].misses == 1
        assert await told(house) == []
    emulator.app_secret = right
    async with running(tmp_path, more=more, emulator=emulator) as house:  # which forgets no miss
        emulator.app_secret = "another"
        assert (await look(house))["feishu:default"].told == "told"
        (line,) = await told(house)
        assert line.startswith(REFUSED[language])
        assert "channels.feishu.appSecret" in line
        assert house.counted('clawgate_watch_up{account="feishu:default",model=""} 0.0')
        await look(house)
    emulator.app_secret = right
    async with running(tmp_path, more=more, emulator=emulator) as house:
        emulator.app_secret = "another"
        await look(house)
        assert await told(house) == [line]
        emulator.app_secret = right
        await look(house)
        await look(house)
        assert await told(house) == [line, f"`feishu:default` {back}"]
        assert house.counted('clawgate_watch_up{account="feishu:default",model=""} 1.0')
        emulator.app_secret = "another"
        await look(house)
        await look(house)
        assert len(await told(house)) == 3  # another outage
        assert house.anthropic.requests == []


async def test_self_watch_miss_alone_is_not_told(tmp_path: Path) -> None:
    async with running(tmp_path, more=OWNED) as house:
        for _ in range(2):
            house.feishu.app_secret = "another"
            await look(house)
            house.feishu.app_secret = SECRETS["FEISHU_APP_SECRET"]
            await look(house)
        assert await told(house) == []


@pytest.mark.parametrize(("lost", "counts"), [("accept", 1), ("rewrite", 2)])
async def test_self_watch_notice_survives_a_kill_once(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch, lost: str, counts: int
) -> None:
    more = f'{OWNED}\ndatabase: {{ url: "{database_url}" }}'
    emulator = feishu_emulator()
    async with running(tmp_path, more=more, emulator=emulator) as house:
        emulator.app_secret = "another"
        await look(house)
        store, calls = house.gateway.runtime.store, 0
        holder: Any = store if lost == "accept" else store.later
        real = getattr(holder, lost)

        async def dies(*given: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls >= counts:
                raise StoreUnavailable("killed")
            return await real(*given, **named)

        monkeypatch.setattr(holder, lost, dies)
        await look(house)
        assert seen_in((await store.later.of_id(WATCH))[0].body)["feishu:default"].told == "owed"
    emulator.app_secret = SECRETS["FEISHU_APP_SECRET"]
    async with running(tmp_path, more=more, emulator=emulator) as house:
        await look(house)  # it is back, and the outage was told, or is now
        first, second = await told(house)
        assert first.startswith(REFUSED["en"])
        assert second == "`feishu:default` is working again."
        await look(house)
        assert len(await told(house)) == 2


async def test_self_watch_is_one_of_two_replicas(tmp_path: Path, postgres_url: str) -> None:
    async with two(tmp_path, postgres_url, [], OWNED) as (one, other):
        one.feishu.app_secret = "another"
        await look(one)
        await look(other)
        await look(one)
        await other.idle()
        (line,) = await told(one)
        assert line.startswith(REFUSED["en"])
        for house in (one, other):
            await seen(house.gateway.runtime)
            assert house.counted('clawgate_watch_up{account="feishu:default",model=""} 0.0')


async def test_self_watch_sends_a_signed_delivery_that_is_no_turn(tmp_path: Path) -> None:
    port = free_port()
    public = f"http://127.0.0.1:{port}"
    more = f'{OWNED}\nserver: {{ publicUrl: "{public}", adminToken: {TOKEN} }}'
    async with running(tmp_path, more=more) as house:
        channel: Any = house.gateway.runtime.setup.channels["feishu", "default"]
        http = house.gateway.connections.protocol
        async with serve_on_loopback(house.gateway.app, http=http, port=port):
            assert (await look(house))["feishu:default"].misses == 0
            assert channel.condition.is_unheard  # which the platform would end
            assert await house.gateway.runtime.store.backlog()
            assert house.counted('outcome="') is False  # no delivery is counted
        await look(house)
        await look(house)
        (line,) = await told(house)
        assert f"{public}/webhooks/feishu/default: nobody answers there" in line
        assert "let the name and the proxy lead to" in line

        async def another(scope: Any, receive: Any, send: Any) -> None:
            """Another gateway of the same app: it verifies, and answers as the platform expects."""
            body = orjson.dumps({"challenge": "clawgate-watch"})
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})

        async with serve_on_loopback(another, port=port):
            assert "another gateway" in (await look(house))["feishu:default"].reason[0]
        async with serve_on_loopback(house.gateway.app, http=http, port=port):
            await look(house)
        assert (await told(house))[1:] == ["`feishu:default` is working again."]


async def test_self_watch_delivery_cannot_be_forged(tmp_path: Path) -> None:
    async with running(tmp_path, more=OWNED) as house:
        for value in (f"clawgate-watch-{'0' * 32}-{'0' * 64}", "clawgate-watch-é"):
            event = {"type": "url_verification", "token": SECRETS["FEISHU_VERIFICATION_TOKEN"], "challenge": value}
            answer = await house.push(event)
            assert answer.json() == {"challenge": value}  # like anybody's check of the address


def moved(telegram: TelegramEmulator) -> None:
    assert telegram.webhook
    telegram.webhook.url = "https://old.example.com/hook"


def failing(telegram: TelegramEmulator) -> None:
    assert telegram.webhook
    telegram.webhook.last_error_date = int(telegram.now())
    telegram.webhook.last_error_message = "Wrong response from the webhook: 502 Bad Gateway"


@pytest.mark.parametrize(
    ("fault", "says_"),
    [
        (moved, "a webhook is set for this bot, at old.example.com, not here"),
        (failing, "Telegram's last delivery failed: Wrong response from the webhook: 502"),
    ],
)
async def test_self_watch_sees_where_telegram_delivers(
    tmp_path: Path, fault: Callable[[TelegramEmulator], None], says_: str
) -> None:
    telegram = TelegramEmulator()
    more = 'owners: ["telegram:4711"]\nwatch: { every: 15m }\nserver: { publicUrl: "https://bot.example.com" }'
    async with bot(tmp_path, telegram, mode="webhook", more=more) as house:
        await house.until(lambda: telegram.webhook)
        assert (await look(house))["telegram:default"].misses == 0
        fault(telegram)
        await look(house)
        await look(house)
        found = (await seen(house.gateway.runtime))["telegram:default"]
        assert says_ in found.reason[0]
        assert found.misses == 2
        assert found.told == "told"


async def test_self_watch_sees_that_more_and_more_updates_wait(tmp_path: Path) -> None:
    telegram = TelegramEmulator()
    more = 'owners: ["telegram:4711"]\nwatch: { every: 15m }\nserver: { publicUrl: "https://bot.example.com" }'
    async with bot(tmp_path, telegram, mode="webhook", more=more) as house:
        await house.until(lambda: telegram.webhook.url)
        misses = []
        for _ in range(3):  # as long as it only stays late, Telegram reports no failure
            update = telegram.text_update("hello", chat=telegram.private())
            telegram.pending.append(Pending(update=update, since=telegram.now()))
            misses.append((await look(house))["telegram:default"].misses)
        found = (await look(house))["telegram:default"]
        assert (misses, found.misses) == ([0, 1, 2], 0)  # which no longer grows


@pytest.mark.parametrize("every", ["0m", "30s", "15", "1.5h", "every 15m"])
def test_self_watch_interval_is_a_minute_or_more(every: str) -> None:
    with pytest.raises(ValueError, match="expected a time such as 15m, 6h or 1d; at least 1m"):
        WatchConfig(every=every)


async def test_self_watch_leaves_to_the_channel_what_it_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.app.health.LOOK_SECONDS", 0.02)
    emulator = feishu_emulator()
    emulator.app_secret = "another"
    async with running(tmp_path, more=OWNED, emulator=emulator) as house:
        states = house.gateway.runtime.channel_states
        await house.until(lambda: states()["feishu", "default"].is_bad)
        await look(house)
        found = (await look(house))["feishu:default"]
        assert (found.misses, found.told) == (2, "")


async def test_self_watch_asks_each_first_model_for_one_token(tmp_path: Path) -> None:
    more = f"{MODEL}\nbudgets: {{ agent: {{ tokensPerDay: 1000000 }} }}"
    async with running(tmp_path, more=more, script=lambda _: says("ok")) as house:
        name = "anthropic/claude-sonnet-4-6"
        assert (await look(house))[name].misses == 0
        (request,) = house.anthropic.requests
        assert request.body["max_tokens"] == 1
        assert house.counted(f'clawgate_model_requests_total{{model="{name}"}} 1.0')
        assert house.counted(f'clawgate_model_cost_total{{model="{name}"}}')
        today = day(house.gateway.runtime.now(), house.gateway.config.server.zone)
        (used,) = await house.gateway.runtime.store.usage(today, ["agent:helper"])
        assert used.tokens
        assert used.cost
        house.anthropic.api_key = "another"
        await look(house)
        await look(house)
        (line,) = await told(house)
        assert line.startswith(f"`{name}` failed its last checks: ")
        assert "providers.anthropic.apiKey (ANTHROPIC_API_KEY)" in line
        assert not house.gateway.runtime.setup.failing_models  # turns ask it as before
        house.anthropic.api_key = SECRETS["ANTHROPIC_API_KEY"]
        await look(house)
        assert (await told(house))[1:] == [f"`{name}` is working again."]
        await house.say("hello")
        assert (await house.replies(3))[2] == "ok"


async def test_self_watch_is_off_unless_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.app.serve.LOOK_SECONDS", 0.05)
    async with edited(tmp_path, more=OWNED.replace("watch:", "# watch:")) as (house, editor):
        later = house.gateway.runtime.store.later
        assert not await later.of_id(WATCH)
        await editor.replace("# watch:", "watch:")
        (row,) = await later.of_id(WATCH)
        await editor.replace("15m", "1m")

        async def is_sooner() -> bool:
            (now,) = await later.of_id(WATCH)
            return bool(now.due and row.due and now.due < row.due)

        await house.until(is_sooner)
        await look(house)
        await editor.replace("watch:", "# watch:")

        async def is_gone() -> bool:
            return not await later.of_id(WATCH)

        await house.until(is_gone)
        assert house.anthropic.requests == []


async def test_self_watch_is_shown_by_metrics_readyz_and_doctor(tmp_path: Path) -> None:
    port = free_port()
    more = f"{OWNED}\nserver: {{ adminToken: {TOKEN}, port: {port} }}"
    async with running(tmp_path, more=more, script=[says("hi")]) as house:
        await house.say("hello")
        await house.replies(1)
        await house.idle()
        house.feishu.app_secret = "another"
        await look(house)
        async with client(house.url, headers={"authorization": f"Bearer {TOKEN}"}) as http:
            view = (await http.get("/readyz")).json()
            metrics = (await http.get("/metrics")).text
        assert view["watch"]["feishu:default"]["misses"] == 1
        assert "channels.feishu.appSecret" in view["watch"]["feishu:default"]["fix"]
        assert view["answers"]["p50"] == view["answers"]["p95"] > 0
        assert view["answers"]["lost"] == 0
        assert 'clawgate_watch_up{account="feishu:default",model=""} 0.0' in metrics
        assert 'clawgate_answer_seconds{quantile="0.95"} ' in metrics
        assert "clawgate_lost_total 0.0" in metrics
        async with serve_on_loopback(house.gateway.app, http=house.gateway.connections.protocol, port=port):
            findings = await examine(load(tmp_path / "config.yaml", SECRETS), wanted=lambda probe: probe == "gateway")
        (found,) = [it for it in findings if it.check == "watch"]
        assert found.message.startswith("feishu:default has not answered since ")
        assert "自" in found.message.zh


async def test_self_watch_counts_a_reply_that_is_given_up_as_lost(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("hi")]) as house:
        house.feishu.fail_next("/open-apis/im/v1/messages", times=9, code=230002)
        await house.say("hello")
        await house.until(lambda: house.counted("clawgate_lost_total 1.0"))
