"""A channel that is dead: the operator reads on the page which one, why and what to do, until it is mended."""

from pathlib import Path

from playwright.async_api import Browser, expect

from tests.browser.house import TOKEN, house
from tests.browser.tab import PHONE, visitor
from tests.emulators.models.script import says
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
                "telegram:default 被拒绝：机器人令牌不正确或已被撤销（401）。"
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
