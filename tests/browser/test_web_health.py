"""A channel that is dead, or a database that takes nothing: the page says which, why and what to do, until it is mended."""

import sqlite3
from contextlib import closing
from pathlib import Path

from playwright.async_api import Browser, expect

from tests.browser.house import TOKEN, house
from tests.browser.tab import PHONE, visitor
from tests.emulators.models.script import Fault, says
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.loopback import serve_on_loopback

ANN = "canary-ann-token-9182736455"
SERVER = f"server: {{ adminToken: {TOKEN}, users: {{ ann: {ANN} }} }}"


async def test_the_operator_reads_which_channel_is_dead_and_the_others_do_not(browser: Browser, tmp_path: Path) -> None:
    telegram = TelegramEmulator()
    right, telegram.token = telegram.token, "7000000001:AAAnotherAnotherAnotherAnotherAnot1"
    async with serve_on_loopback(telegram.app) as url:
        channels = f', telegram: {{ botToken: "{right}", apiRoot: "{url}" }}'
        async with (
            house(tmp_path, script=[says("Here.")], channels=channels, more=SERVER) as home,
            visitor(browser, home) as tab,
        ):
            await expect(tab.connection).to_contain_text("telegram:default is refused: ")
            await expect(tab.connection).to_contain_text("@BotFather")
            await expect(tab.connection).to_contain_text("take channels.telegram.botToken from @BotFather")
            await tab.page.locator("#language").click()
            await expect(tab.connection).to_have_text(
                "telegram:default 被拒绝：机器人令牌不正确或已被撤销（401）——"
                "请从 @BotFather 获取 channels.telegram.botToken，并检查 channels.telegram.apiRoot"
            )
            await tab.page.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
            assert await tab.sticking_out() == []
            async with visitor(browser, home, address=home.url) as other:
                other.watch.expects("status of 401")
                await other.sign_in(ANN)
                await expect(other.connection).to_have_text("")
            telegram.token = right
            await expect(tab.connection).to_have_text("")


async def test_page_message_waits_while_the_database_is_locked(browser: Browser, tmp_path: Path) -> None:
    fault = Fault(status=401, message="invalid x-api-key")
    async with (
        house(tmp_path, script=[says("Here."), *[fault] * 9], more=SERVER) as home,
        visitor(browser, home) as tab,
        visitor(browser, home, address=home.url) as other,
    ):
        for page in (tab, other):
            page.watch.expects("status of 503", "status of 401")
        await other.sign_in(ANN)
        with closing(sqlite3.connect(home.folder / "data" / "clawgate.db", isolation_level=None)) as foreign:
            foreign.execute("BEGIN IMMEDIATE")
            why = "Another program holds the database (a backup, a SQLite browser)."
            await other.say("Are you there?")
            await expect(other.own.last).to_contain_text(
                f"{why} Your message is kept here and goes out as soon as that is over."
            )
            await other.page.locator("#language").click()
            zh = "另一个程序占用着数据库（备份程序或 SQLite 浏览器）。消息保存在此，恢复后会自动发出。"
            await expect(other.page.get_by_text(zh)).to_be_visible()
            await other.page.locator("#language").click()
            await expect(other.connection).to_have_text("")
            await expect(tab.connection).to_contain_text(
                f"The gateway accepts no messages: {why[:1].lower()}{why[1:-1]} — the gateway continues when it is "
            )
            foreign.execute("ROLLBACK")
        await other.is_answered("Here.")
        await expect(tab.connection).to_have_text("")
        await tab.say("And the model?")
        fix = "set a valid key: providers.anthropic.apiKey (ANTHROPIC_API_KEY)"
        await expect(tab.answers.last).to_contain_text(fix)
        await tab.page.goto(f"{home.url}/console")
        await expect(tab.page.get_by_role("listitem").filter(has_text="anthropic/claude-sonnet-4-6")).to_have_text(
            f"The last request to anthropic/claude-sonnet-4-6 failed: the vendor refuses the key (auth) — {fix}"
        )
