"""When the line is bad: the page says so, recovers by itself, and what was written meanwhile arrives once."""

import asyncio
from pathlib import Path

from playwright.async_api import Browser, Route, expect

from tests.browser.house import house
from tests.browser.tab import visitor
from tests.emulators.models.script import calls, says

DOOR = "**/webhooks/web/default"
EVENTS = "**/api/events*"
LIST = "**/api/chats"
OFFLINE = ("net::ERR_",)
SHORT_GRACE = "limits: { graceSeconds: 1 }"
TALE = "Good morning. Here is how an answer grows: a few words at a time, until the very last one."


async def test_a_dead_server_is_told_of_and_what_was_written_meanwhile_arrives_once(
    browser: Browser, tmp_path: Path
) -> None:
    async with house(tmp_path, script=[says("One."), says("Two.")]) as home, visitor(browser, home) as tab:
        tab.watch.expects(*OFFLINE)
        await tab.say("Before")
        await tab.is_answered("One.")
        await expect(tab.connection).to_have_text("")
        await home.down()
        await expect(tab.connection).to_have_text("Connection lost. Trying again…")
        await tab.say("Meanwhile")
        await expect(tab.own.last).to_contain_text("Meanwhile")
        await expect(tab.own.last).to_contain_text("Waiting for the connection")
        await home.up()
        await tab.is_answered("One.", "Two.")
        await tab.has_said("Before", "Meanwhile")
        await expect(tab.own.last).not_to_contain_text("Waiting")
        await expect(tab.connection).to_have_text("")
        assert len(home.anthropic.requests) == 2
        await tab.reload()
        await tab.has_said("Before", "Meanwhile")
        await tab.is_answered("One.", "Two.")


async def test_a_message_whose_receipt_was_lost_is_sent_again_and_is_still_one(
    browser: Browser, tmp_path: Path
) -> None:
    async with house(tmp_path, script=[says("Once.")]) as home, visitor(browser, home) as tab:
        tab.watch.expects(*OFFLINE)
        sent: list[str] = []

        async def lose_the_receipt(route: Route) -> None:
            sent.append(route.request.post_data or "")
            if len(sent) == 2:
                await tab.page.unroute(EVENTS)
            if len(sent) > 1:
                await route.continue_()
                return
            await route.fetch()
            await route.abort("connectionreset")

        await tab.page.route(DOOR, lose_the_receipt)
        await tab.page.route(EVENTS, lambda route: route.abort("connectionrefused"))
        await tab.reload()
        await tab.say("Is this once?")
        await home.until(lambda: len(sent) == 2)
        await tab.is_answered("Once.")
        assert sent[0] == sent[1]
        await tab.say("And again?")
        await tab.is_answered("Once.", "And again?")
        await tab.has_said("Is this once?", "And again?")
        assert len(home.anthropic.requests) == 2


async def test_an_unsent_message_survives_a_reload(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path, script=[says("Got it.")]) as home, visitor(browser, home) as tab:
        tab.watch.expects(*OFFLINE, "404")
        await tab.page.route(DOOR, lambda route: route.abort("connectionrefused"))
        await tab.say("Do not forget me")
        await expect(tab.own).to_contain_text("Waiting for the connection")
        await tab.reload()
        await tab.has_said("Do not forget me")
        assert home.anthropic.requests == []
        await tab.page.unroute(DOOR)
        await tab.is_answered("Got it.")
        await tab.has_said("Do not forget me")
        assert len(home.anthropic.requests) == 1


async def test_messages_written_without_a_connection_arrive_in_their_order(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path, script=[says("One.")]) as home, visitor(browser, home) as tab:
        tab.watch.expects(*OFFLINE)
        await tab.say("Hello")
        await tab.is_answered("One.")
        await home.down()
        numbers = [f"Number {number}" for number in range(1, 6)]
        for text in numbers:
            await tab.say(text)
        await tab.has_said("Hello", *numbers)
        await home.up()
        await expect(tab.answers.last).to_contain_text("Number 5")
        await expect(tab.draft).to_have_count(0)
        await tab.has_said("Hello", *numbers)
        asked = str(home.anthropic.requests[-1].body["messages"])
        places = [asked.rindex(text) for text in numbers]
        assert places == sorted(places)


async def test_a_message_written_before_the_page_knows_anything_is_answered(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path, script=[says("Quick!")]) as home, visitor(browser, home) as tab:
        tab.watch.expects(*OFFLINE)
        await tab.page.route(LIST, lambda route: route.abort("connectionrefused"))
        await tab.reload()
        await tab.say("Already here")
        await tab.has_said("Already here")
        await home.until(lambda: len(home.anthropic.requests) == 1)
        await tab.page.unroute(LIST)
        await tab.is_answered("Quick!")
        await tab.has_said("Already here")


async def test_a_refused_message_says_why_and_can_be_tried_again_or_discarded(browser: Browser, tmp_path: Path) -> None:
    async with house(tmp_path, script=[says("Good.")]) as home, visitor(browser, home) as tab:
        tab.watch.expects("status of 422")
        refusal = {"error": "Not today.", "code": "not-today"}
        await tab.page.route(DOOR, lambda route: route.fulfill(status=422, json=refusal))
        await tab.say("Let me in")
        await tab.say("Me too")
        await tab.has_said("Let me in", "Me too")
        for article in await tab.own.all():
            await expect(article).to_contain_text("Not today.")
        await tab.own.last.get_by_role("button", name="Discard").click()
        await tab.has_said("Let me in")
        await tab.page.unroute(DOOR)
        await tab.own.first.get_by_role("button", name="Try again").click()
        await tab.is_answered("Good.")
        await tab.has_said("Let me in")


async def test_an_answer_that_a_dying_server_began_is_finished_by_the_next_one(
    browser: Browser, tmp_path: Path
) -> None:
    script = [calls(("write", {"file_path": "a.txt", "content": "one"})), says(TALE), says(TALE)]
    async with house(tmp_path, script=script, more=SHORT_GRACE) as home, visitor(browser, home) as tab:
        tab.watch.expects(*OFFLINE)
        home.line.hold(after_pieces=4)
        await tab.say("Write it down")
        await expect(tab.draft).to_contain_text("Good morning.")
        await home.down()
        home.line.release()
        await expect(tab.connection).to_have_text("Connection lost. Trying again…")
        await home.up()
        await tab.is_answered(TALE)
        await tab.has_said("Write it down")
        assert await tab.tool_states(tab.answers.first) == [("write", "done")]
        await expect(tab.stop).to_have_count(0)


async def test_five_tabs_side_by_side_all_hear_of_it(browser: Browser, tmp_path: Path) -> None:
    """A browser has six connections for one server, and each tab that can be seen holds one."""
    async with house(tmp_path, script=[says("To all.")]) as home, visitor(browser, home) as tab:
        tabs = [tab, *[await tab.another() for _ in range(4)]]
        await tab.say("Hello all")
        await tab.is_answered("To all.")
        async with asyncio.TaskGroup() as group:
            for other in tabs[1:]:
                group.create_task(expect(other.conversation("Hello all")).to_be_visible())


async def test_a_tab_too_many_says_so_and_comes_in_when_another_is_closed(browser: Browser, tmp_path: Path) -> None:
    more = "limits: { eventStreams: 1 }"
    async with house(tmp_path, script=[says("Here.")], more=more) as home, visitor(browser, home) as tab:
        tab.watch.expects("status of 503")
        await expect(tab.connection).to_have_text("")
        other = await tab.another()
        await expect(other.connection).to_have_text(
            "Too many pages of this chat are open. Close one; this one tries again by itself."
        )
        await tab.page.goto("about:blank")
        await expect(other.connection).to_have_text("")
        await other.say("Am I in?")
        await other.is_answered("Here.")
