"""When the line is bad: the page says so, recovers by itself, and what was written meanwhile arrives once."""

from playwright.async_api import Route, expect

from tests.browser.tab import TALE, Visit
from tests.emulators.models.script import calls, says

DOOR = "**/webhooks/web/default"
EVENTS = "**/api/events*"
CHAT = "**/api/chats/*"
LIST = "**/api/chats"
OFFLINE = "net::ERR_"


async def test_page_outage_queues_messages_and_sends_them_once(visit: Visit) -> None:
    numbers = [f"Number {number}" for number in range(1, 6)]
    async with visit(says("One.")) as (home, tab):
        tab.watch.expects(OFFLINE)
        await tab.ask("Before", "One.")
        await expect(tab.connection).to_have_text("")
        await home.down()
        await expect(tab.connection).to_have_text("Connection lost. Trying again…")
        for text in numbers:
            await tab.say(text)
        await tab.has_said("Before", *numbers)
        await expect(tab.own.last).to_contain_text("Waiting for the connection")
        await home.up()
        async for _ in tab.at_once_and_after_a_reload():
            await expect(tab.answers.last).to_contain_text("Number 5")
            await expect(tab.draft).to_have_count(0)
            await tab.has_said("Before", *numbers)
            await expect(tab.own.last).not_to_contain_text("Waiting")
            await expect(tab.connection).to_have_text("")
        written = str([it for it in home.anthropic.requests[-1].body["messages"] if it["role"] == "user"])
        assert [written.count(text) for text in numbers] == [1] * 5
        assert sorted(numbers, key=written.index) == numbers


async def test_a_message_whose_receipt_was_lost_is_sent_again_and_is_still_one(visit: Visit) -> None:
    async with visit(says("Once.")) as (home, tab):
        tab.watch.expects(OFFLINE)
        sent: list[str] = []

        async def lose_the_receipt(route: Route) -> None:
            sent.append(route.request.post_data or "")
            if len(sent) == 2:
                for address in (EVENTS, CHAT):
                    await tab.page.unroute(address)
            if len(sent) > 1:
                await route.continue_()
                return
            await route.fetch()
            await route.abort("connectionreset")

        await tab.page.route(DOOR, lose_the_receipt)
        for address in (EVENTS, CHAT):  # by either the page would see that it has arrived
            await tab.page.route(address, lambda route: route.abort("connectionrefused"))
        await tab.reload()
        await tab.say("Is this once?")
        await home.until(lambda: len(sent) == 2)
        await tab.is_answered("Once.")
        assert sent[0] == sent[1]
        await tab.ask("And again?", "Once.", "And again?")
        await tab.has_said("Is this once?", "And again?")
        assert len(home.anthropic.requests) == 2


async def test_page_unsent_message_survives_a_reload(
    visit: Visit,
) -> None:
    async with visit(says("Quick!"), says("Got it."), says("Good.")) as (home, tab):
        tab.watch.expects(OFFLINE, "404", "status of 422")
        await tab.page.route(LIST, lambda route: route.abort("connectionrefused"))
        await tab.reload()
        await tab.say("Already here")
        await tab.has_said("Already here")
        await home.until(lambda: len(home.anthropic.requests) == 1)
        await tab.page.unroute(LIST)
        await tab.is_answered("Quick!")
        await tab.has_said("Already here")

        await tab.new_chat()
        await tab.page.route(DOOR, lambda route: route.abort("connectionrefused"))
        await tab.say("Do not forget me")
        await expect(tab.own).to_contain_text("Waiting for the connection")
        await tab.reload()
        await tab.has_said("Do not forget me")
        assert len(home.anthropic.requests) == 1
        await tab.page.unroute(DOOR)
        await tab.is_answered("Got it.")
        await tab.has_said("Do not forget me")
        assert len(home.anthropic.requests) == 2

        refusal = {"error": "Not today.", "code": "not-today"}
        await tab.page.route(DOOR, lambda route: route.fulfill(status=422, json=refusal))
        await tab.say("Let me in")
        await tab.say("Me too")
        await tab.has_said("Do not forget me", "Let me in", "Me too")
        for at in (1, 2):
            await expect(tab.own.nth(at)).to_contain_text("Not today.")
        await tab.own.last.get_by_role("button", name="Discard").click()
        await tab.has_said("Do not forget me", "Let me in")
        await tab.page.unroute(DOOR)
        await tab.own.last.get_by_role("button", name="Try again").click()
        await tab.is_answered("Got it.", "Good.")
        await tab.has_said("Do not forget me", "Let me in")


async def test_an_answer_that_a_dying_server_began_is_finished_by_the_next_one(visit: Visit) -> None:
    script = [calls(("write", {"file_path": "a.txt", "content": "one"})), says(TALE), says(TALE)]
    async with visit(*script, more="limits: { graceSeconds: 1 }") as (home, tab):
        tab.watch.expects(OFFLINE)
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


async def test_a_tab_too_many_says_so_and_comes_in_when_another_is_closed(visit: Visit) -> None:
    async with visit(says("Here."), more="limits: { eventStreams: 1 }") as (_, tab):
        tab.watch.expects("status of 503")
        await expect(tab.connection).to_have_text("")
        other = await tab.another()
        await expect(other.connection).to_have_text(
            "Too many pages of this chat are open. Close one; this one tries again by itself."
        )
        await tab.page.goto("about:blank")
        await expect(other.connection).to_have_text("")
        await other.ask("Am I in?", "Here.")
