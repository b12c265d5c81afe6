"""Who may come in, and what cannot get out: the token's door, and texts, titles, file names and answers that are hostile."""

from playwright.async_api import FilePayload, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from tests.browser.house import TOKEN
from tests.browser.tab import Tab, Visit
from tests.emulators.models.script import calls, says
from tests.loopback import serve_on_loopback

HOSTILE = [
    "<script>alert('hacked')</script>",
    "<img src=x onerror=alert('hacked')>",
    "<svg onload=alert('hacked')></svg>",
    "\"'><iframe srcdoc=\"<script>parent.alert('hacked')</script>\"></iframe>",
    "</textarea></article><b onmouseover=alert('hacked')>over</b>",
    "${alert('hacked')} {{constructor.constructor('alert(1)')()}}",
]
HOSTILE_MARKDOWN = """\
<script>alert('hacked')</script> and <img src=x onerror="alert('hacked')">

[a link](javascript:alert('hacked')) [another](JaVaScRiPt:alert('hacked')) [data](data:text/html,<script>alert(1)</script>)

![a picture](https://elsewhere.example/track.png) <style>body { display: none }</style>

| a | b |
|:--|--:|
| <b onclick=alert('hacked')>x</b> | `<script>alert('hacked')</script>` |

```html" onmouseover="alert('hacked')
<script>alert('hacked')</script>
```

<https://good.example/> [good](https://good.example/?a=1&b=2)

The end.
"""


async def shown_as_text(tab: Tab, text: str, at: int = 0) -> None:
    """Their own message, its file, the answer, and the title, which stands there in the list."""
    await expect(tab.own.locator(".bubble")).to_have_text(text)
    await expect(tab.answers).to_have_count(1)
    await expect(tab.log.locator("script, iframe, svg[onload], b, [onerror], [onmouseover]")).to_have_count(0)
    await expect(tab.conversations.get_by_role("link").nth(at)).to_contain_text(text[:50])
    await tab.own.get_by_role("link").hover()


async def test_page_shows_hostile_text_as_text(visit: Visit) -> None:
    tool = calls(("exec", {"command": f"echo {HOSTILE[1]!r}"}))
    async with visit(*(says(text) for text in HOSTILE), tool, says("Done.")) as (_, tab):
        for text in HOSTILE:
            await tab.attach(FilePayload(name=text.replace("/", "_"), mimeType="image/png", buffer=b"<script>"))
            await tab.ask(text, "")
            await shown_as_text(tab, text)
            await tab.new_chat()
        await tab.reload()
        for at, text in enumerate(reversed(HOSTILE)):
            await tab.conversations.get_by_role("link").nth(at).click()
            await shown_as_text(tab, text, at)
        await tab.new_chat()
        await tab.ask("Run it", "Done.")
        await tab.answers.get_by_text("1 tool used").click()
        await expect(tab.tools(tab.answers)).to_contain_text("<img src=x")
        await tab.choose("Run it", "Rename")
        field = tab.conversations.get_by_role("textbox")
        await field.fill(HOSTILE[1])
        await field.press("Enter")
        await expect(tab.conversations.get_by_role("link").first).to_have_text(HOSTILE[1])
        await tab.conversations.get_by_role("listitem").first.hover()
        await tab.conversations.get_by_role("button", name="Options").first.click()
        await tab.page.get_by_role("menuitem", name="Delete").click()
        await expect(tab.page.get_by_role("dialog")).to_contain_text(HOSTILE[1])


async def test_a_hostile_answer_becomes_harmless_markdown(visit: Visit) -> None:
    async with visit(says(HOSTILE_MARKDOWN)) as (_, tab):
        await tab.ask("Do your worst", "The end.")
        async for _ in tab.at_once_and_after_a_reload():
            await expect(tab.answers).to_contain_text("The end.")
            await expect(tab.answers.locator("img, script, style, iframe, object, [style], [onclick]")).to_have_count(0)
            addresses = await tab.answers.locator("a").evaluate_all("(links) => links.map((link) => link.href)")
            assert all(address.startswith(("https://elsewhere.", "https://good.")) for address in addresses)
            assert "https://good.example/?a=1&b=2" in addresses


HOSTILE_FORMULAS = r"""\
$\href{javascript:alert('hacked')}{a}$ $\url{javascript:alert('hacked')}$ $\includegraphics{https://elsewhere.example/x.png}$
$\htmlClass{dialog}{b}$ $\htmlStyle{position: fixed}{c}$ $\def\a{\a\a}\a$ $\rule{9999em}{9999em}$ and $x^2$

The end.
"""


async def test_a_hostile_formula_leads_nowhere_and_has_a_size(visit: Visit) -> None:
    async with visit(says(HOSTILE_FORMULAS)) as (_, tab):
        await tab.ask("Do your sums", "The end.")
        async for _ in tab.at_once_and_after_a_reload():
            await expect(tab.answers.locator(".katex").last).to_be_visible()
            await expect(tab.answers.locator("a, img, script, .dialog")).to_have_count(0)
            drawn = "(all) => all.map((it) => [getComputedStyle(it).position, it.getBoundingClientRect().width])"
            sizes = await tab.answers.locator(".katex *").evaluate_all(drawn)
            assert max(width for _, width in sizes) > 400
            assert all(position != "fixed" and width < 1_500 for position, width in sizes)


async def test_page_token_login_and_logout(visit: Visit) -> None:
    more = f"server: {{ host: 0.0.0.0, adminToken: {TOKEN} }}"
    async with visit(says("Welcome."), says("Welcome back."), more=more) as (_, tab):
        tab.watch.expects("status of 401")
        dialog = tab.page.get_by_role("dialog", name="Sign in")
        token = dialog.get_by_label("Token")
        await expect(token).to_be_focused()
        await expect(token).to_have_attribute("type", "password")
        await token.fill("not-the-token-at-all")
        await dialog.get_by_role("button", name="Sign in").click()
        await expect(dialog.get_by_role("alert")).to_have_text("That is not the token.")
        await tab.sign_in(TOKEN)
        await tab.ask("A secret of mine", "Welcome.")
        place = tab.page.url
        await tab.reload()
        await tab.is_answered("Welcome.")

        await tab.page.context.clear_cookies()
        await tab.say("My session ran out")
        await expect(dialog).to_be_visible()
        await tab.sign_in(TOKEN)
        await tab.is_answered("Welcome.", "Welcome back.")
        await tab.has_said("A secret of mine", "My session ran out")
        cookies = await tab.page.context.cookies()
        assert [(cookie["httpOnly"], cookie["sameSite"]) for cookie in cookies] == [(True, "Strict")]
        assert TOKEN not in await tab.kept()

        await tab.page.get_by_role("button", name="Sign out").click()
        await expect(dialog).to_be_visible()
        await tab.page.goto(place)
        await tab.reload()
        await expect(dialog).to_be_visible()
        await expect(tab.page.locator("body")).not_to_contain_text("secret of mine")
        assert await tab.page.context.cookies() == []


async def test_another_site_cannot_write_in_our_name(visit: Visit) -> None:
    """A page from elsewhere, in the same browser on the same machine, sends all that a browser lets it send."""

    async def nasty(_request: Request) -> Response:
        return HTMLResponse("<!doctype html><title>Nasty</title><link rel=icon href='data:,'>")

    async with serve_on_loopback(Starlette(routes=[Route("/", nasty)])) as elsewhere, visit() as (home, tab):
        tab.watch.expects(elsewhere, "CORS", "net::ERR_FAILED", "NotSameOrigin", "status of 403")
        page = await tab.page.context.new_page()
        await page.goto(elsewhere)
        outcomes = await page.evaluate(
            """async (url) => {
                const body = JSON.stringify({ id: "m_12345678", chat: "c_12345678", agent: "", text: "hi" });
                const given = { method: "POST", body, credentials: "include" };
                const send = (init) => fetch(`${url}/webhooks/web/default`, { ...given, ...init });
                const tries = [{ mode: "no-cors" }, {}, { headers: { "x-clawgate": "1" } }];
                const outcome = (init) => send(init).then((answer) => answer.type, () => "refused");
                return Promise.all(tries.map(outcome));
            }""",
            home.url,
        )
        assert outcomes == ["refused", "refused", "refused"]
        await tab.reload()
        await expect(tab.page.get_by_role("heading", name="Clawgate")).to_be_visible()
        await expect(tab.conversations.get_by_role("link")).to_have_count(0)
        assert home.anthropic.requests == []
