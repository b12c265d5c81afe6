"""One tab of a person's browser with the web chat in it, in the words of whoever sits before it.

Everything is found as a screen reader finds it, by role and name; the names are those of the page's contract.
"""

import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Protocol

from playwright.async_api import Browser, BrowserContext, Locator, Page, Response, expect

from tests.browser.house import AGENTS, House
from tests.browser.watch import Watch
from tests.emulators.models.server import Reply
from tests.waiting import PATIENCE_SECONDS

DESK = {"width": 1200, "height": 800}
PHONE = {"width": 360, "height": 720}
TALE = "Good morning. Here is how an answer grows: a few words at a time, until the very last one."
TWO_AGENTS = """
agents:
  list:
    - { id: helper, name: Helper, model: anthropic/claude-sonnet-4-6, tools: { allow: [read, write, ls] } }
    - { id: coder, name: Coder, model: anthropic/claude-sonnet-4-6, systemPrompt: You are the coder. }
"""

STICKING_OUT = """() => {
    const mayScroll = (node) => node.closest("pre, .table, textarea, svg");
    const isCut = (node) => getComputedStyle(node).textOverflow === "ellipsis";
    const wide = [...document.querySelectorAll("body, body *")].filter(
        (node) => node.clientWidth > 0 && node.scrollWidth > node.clientWidth + 1 && !mayScroll(node) && !isCut(node),
    );
    const zoomed = window.innerWidth > window.outerWidth ? [`${window.innerWidth} pixels wide`] : [];
    return [...zoomed, ...wide.map((node) => node.outerHTML.slice(0, 120))];
}"""


class Tab:
    def __init__(self, page: Page, watch: Watch) -> None:
        self.page = page
        self.watch = watch
        self.message = page.get_by_role("textbox", name="Message", exact=True)
        self.send = page.get_by_role("button", name="Send", exact=True)
        self.stop = page.get_by_role("button", name="Stop", exact=True)
        self.log = page.get_by_role("log", name="Messages")
        self.conversations = page.get_by_role("list", name="Conversations")
        self.connection = page.locator("#connection")
        self.own = self._by("you")
        self.answers = self._by("agent")
        self.draft = self._by("draft")

    def _by(self, author: str) -> Locator:
        return self.log.locator(f'article[data-author="{author}"]')

    async def say(self, text: str) -> None:
        await self.page.bring_to_front()  # a tab behind another draws once a second
        await self.message.fill(text)
        await self.message.press("Enter")

    async def ask(self, text: str, *answers: str) -> None:
        """Something, and wait until these answers stand there."""
        await self.say(text)
        await self.is_answered(*answers)

    async def is_answered(self, *answers: str | re.Pattern[str]) -> None:
        """These and no other answers stand in the conversation, in this order, and none is under way."""
        await expect(self.answers).to_have_count(len(answers))
        for at, answer in enumerate(answers):
            await expect(self.answers.nth(at)).to_contain_text(answer)
        await expect(self.draft).to_have_count(0)

    async def has_said(self, *texts: str) -> None:
        """These and no other messages of the person's stand there, each once."""
        await expect(self.own).to_have_count(len(texts))
        for at, text in enumerate(texts):
            await expect(self.own.nth(at)).to_contain_text(text)

    async def new_chat(self) -> None:
        await self.page.get_by_role("button", name="New chat").click()

    def conversation(self, title: str) -> Locator:
        """Its link in the sidebar."""
        return self.conversations.get_by_role("link", name=title, exact=True)

    async def choose(self, title: str, option: str) -> None:
        """From the menu of a conversation."""
        await self.page.bring_to_front()
        link = self.page.get_by_role("link", name=title, exact=True)
        entry = self.conversations.get_by_role("listitem").filter(has=link)
        await entry.hover()
        await entry.get_by_role("button", name="Options").click()
        await self.page.get_by_role("menuitem", name=option).click()

    def tools(self, article: Locator) -> Locator:
        return article.locator("[data-tool]")

    async def tool_states(self, article: Locator) -> list[tuple[str, str]]:
        """Name and state of each tool, from the top."""
        read = "(tools) => tools.map((tool) => [tool.dataset.tool, tool.dataset.state])"
        return [(name, state) for name, state in await self.tools(article).evaluate_all(read)]

    async def attach(self, *files: Any) -> None:
        """Through the file chooser, as far as the files go up."""
        async with self.page.expect_file_chooser() as chooser:
            await self.page.get_by_role("button", name="Attach files").click()
        await (await chooser.value).set_files(list(files))
        await self.has_uploaded()

    async def has_uploaded(self) -> None:
        await expect(self.page.locator('#attachments [data-state="uploading"]')).to_have_count(0)

    async def another(self) -> "Tab":
        """A second tab of the same person at the same place."""
        page = await self.page.context.new_page()
        await page.goto(self.page.url)
        return Tab(page, self.watch)

    async def reload(self) -> None:
        await self.page.reload()

    async def at_once_and_after_a_reload(self) -> AsyncIterator[str]:
        yield "at once"
        await self.reload()
        yield "after a reload"

    async def sign_in(self, token: str) -> None:
        dialog = self.page.get_by_role("dialog", name="Sign in")
        await dialog.get_by_label("Token").fill(token)
        await dialog.get_by_label("Token").press("Enter")
        await expect(dialog).to_be_hidden()

    async def kept(self) -> str:
        """What a script of the page can find in the browser."""
        return str(await self.page.evaluate("[{ ...localStorage }, { ...sessionStorage }, document.cookie]"))

    async def sticking_out(self) -> list[str]:
        """What is wider than its place and may neither scroll there nor be cut: the page would scroll sideways, or a
        phone would zoom out."""
        found: list[str] = await self.page.evaluate(STICKING_OUT)
        return found


class Place(Protocol):
    """A running gateway with the web chat."""

    @property
    def url(self) -> str: ...

    def link(self) -> str:
        """The address that a person opens first."""


@asynccontextmanager
async def visitor(browser: Browser, house: Place, *, address: str = "", **options: Any) -> AsyncIterator[Tab]:
    """A person with a new browser profile opens the web chat, by the link of its start unless an `address` is given;
    `options` are of Playwright's context. At the end the pages must have had nothing to complain of."""
    context: BrowserContext = await browser.new_context(
        **{
            "locale": "en-US",
            "timezone_id": "UTC",
            "viewport": DESK,
            "reduced_motion": "reduce",
            "permissions": ["clipboard-read", "clipboard-write"],
        }
        | options
    )
    context.set_default_timeout(PATIENCE_SECONDS * 1_000)
    try:
        watch = Watch(context, house.url)
        page = await context.new_page()
        address = address or house.link()
        async with page.expect_response(_signed_in) if "#sign-in=" in address else nullcontext():
            await page.goto(address)
        yield Tab(page, watch)
        assert not watch.complaints, watch.complaints
    finally:
        await context.close()


def _signed_in(response: Response) -> bool:
    """The page first asks who is signed in; only the answer to the code itself signs in."""
    return response.url.endswith("/api/session") and response.request.method == "POST"


class Visit(Protocol):
    """A house whose model follows the script, and a visitor in it."""

    def __call__(
        self, *script: Reply, agents: str = AGENTS, more: str = "", **options: Any
    ) -> AbstractAsyncContextManager[tuple[House, Tab]]: ...
