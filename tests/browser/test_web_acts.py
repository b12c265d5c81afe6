"""What one can do with what stands there: answer again, edit, look into tools, find, export, choose."""

import re
from pathlib import Path

from playwright.async_api import Browser, expect

from tests.browser.house import house
from tests.browser.tab import Visit, visitor
from tests.emulators.models.script import Fault, calls, says

BROKEN = Fault(status=400, message="messages: something about this request")
AGENTS = """
agents:
  list:
    - { id: helper, name: Helper, model: anthropic/claude-sonnet-4-6, tools: { allow: [read, write, ls] } }
    - { id: coder, name: Coder, model: anthropic/claude-sonnet-4-6, description: Writes code., examples: [Sort a list] }
"""
MATH = r"""Take $x_1 * y_2$ for $5 and $10, or \(a_b\).

$$
e_1 * f_2 = \frac{1}{2}

- g_3
$$

Broken: $\frac{$

- [x] **formula**
- [ ] proof
"""
CODE = "```python\ndef f(n):\n    return n  # " + "long " * 60 + "\n```\n"


async def test_page_retry_and_edit_survive_a_reload(visit: Visit) -> None:
    script = [says("Zero."), says("One."), says("Two."), says("Three.")]
    async with visit(*script) as (home, tab):
        again = tab.page.get_by_role("button", name="Answer again")
        await tab.ask("Count", "Zero.")
        await tab.ask("On and on", "Zero.", "One.")
        await expect(again).to_have_count(2)
        await again.last.click()
        await tab.is_answered("Zero.", "Two.")
        await tab.has_said("Count", "On and on")

        await tab.page.get_by_role("button", name="Edit").last.click()
        field = tab.page.get_by_role("textbox", name="Other words for your message")
        await expect(field).to_have_value("On and on")
        await field.press("Escape")
        await tab.has_said("Count", "On and on")
        await tab.page.get_by_role("button", name="Edit").last.click()
        await field.fill("Higher:\nmuch <b>higher</b>")
        await field.press("Enter")
        async for _ in tab.at_once_and_after_a_reload():
            await tab.is_answered("Zero.", "Three.")
            await tab.has_said("Count", "Higher:\nmuch <b>higher</b>")
        sent = home.anthropic.requests[-1].body["messages"]
        assert len(sent) == 3
        assert "Higher:\nmuch" in str(sent[-1]["content"][0]["text"])
        assert "On and on" not in str(sent)
        await tab.own.last.hover()
        await tab.own.last.get_by_role("button", name="Copy the message").click()
        assert await tab.page.evaluate("navigator.clipboard.readText()") == "Higher:\nmuch <b>higher</b>"


async def test_page_continue_button_after_a_limit(visit: Visit) -> None:
    script = [says("The first half of a", stop="length"), calls(("ls", {})), says(" long story.")]
    async with visit(*script, more="limits: { continuations: 0, rounds: 1 }") as (home, tab):
        go_on = tab.page.get_by_role("button", name="Continue", exact=True)
        await tab.ask("Tell me a story", 'Say "continue"')
        await tab.reload()
        await expect(tab.page.get_by_role("button", name="Answer again")).to_be_visible()
        await go_on.dblclick()
        await tab.is_answered("The first half of a", "more steps than one answer may take")
        await tab.has_said("Tell me a story", "Continue where you stopped.")
        await expect(go_on).to_have_count(1)
        await tab.page.get_by_role("button", name="Language").click()
        await tab.page.get_by_role("button", name="继续", exact=True).click()
        await tab.page.get_by_text("long story.").wait_for()
        await tab.page.get_by_role("button", name="语言").click()
        await tab.is_answered("The first half of a", "more steps than one answer may take", "long story.")
        await tab.has_said("Tell me a story", "Continue where you stopped.", "请从停下的地方继续。")
        await expect(go_on).to_have_count(0)
        assert [it.refusal for it in home.anthropic.requests] == [None] * 3
        cut, asked = home.anthropic.requests[1].body["messages"][1:]
        assert (cut["role"], cut["content"][0]["text"]) == ("assistant", "The first half of a")
        assert asked["content"][0]["text"].endswith("User: Continue where you stopped.")


async def test_a_failed_answer_looks_like_one_and_is_tried_again(visit: Visit) -> None:
    async with visit(BROKEN, says("Now it works.")) as (_, tab):
        await tab.say("Hello")
        failed = tab.log.locator("article.failed")
        await expect(failed.locator("header .icon")).to_be_visible()
        tint = "(prose) => getComputedStyle(prose).backgroundColor !== 'rgba(0, 0, 0, 0)'"
        assert await failed.locator(".prose").evaluate(tint)
        await tab.reload()
        await failed.get_by_role("button", name="Try again").click()
        await tab.is_answered("Now it works.")
        await expect(failed).to_have_count(0)
        await expect(tab.answers.locator(".model")).to_have_text("anthropic/claude-sonnet-4-6")
        await expect(tab.answers.get_by_text("tokens in")).to_be_hidden()
        await tab.answers.get_by_role("button", name="Tokens and cost").click()
        await expect(tab.answers.get_by_text("tokens in")).to_contain_text("· $0.0")


async def test_a_tool_opens_to_what_it_was_given_and_what_it_gave(visit: Visit) -> None:
    work = calls(("write", {"file_path": "a.txt", "content": "<i>tea</i>"}), ("read", {"file_path": "none.txt"}))
    async with visit(work, says("Done.")) as (_, tab):
        await tab.ask("Work", "Done.")
        async for _ in tab.at_once_and_after_a_reload():
            await tab.answers.get_by_text("2 tools used").click()
            written, missing = (tab.tools(tab.answers).nth(at) for at in (0, 1))
            await written.get_by_role("button").click()
            await expect(written.get_by_label("Arguments")).to_contain_text('"content": "<i>tea</i>"')
            await expect(written.get_by_label("Result")).to_have_text("Wrote a.txt (10 bytes)")
            await expect(written.locator(".tool-seconds")).to_contain_text(" s")
            await missing.get_by_role("button").click()
            await expect(missing.get_by_label("What went wrong")).to_contain_text("none.txt")


async def test_page_draws_math_task_lists_and_code(visit: Visit) -> None:
    async with visit(says(MATH), says(CODE)) as (home, tab):
        await tab.ask("Teach me", "formula")
        drawn = tab.answers.locator(".katex")
        await expect(drawn).to_have_count(3)
        assert await tab.answers.locator("annotation").all_text_contents() == [
            *("x_1 * y_2", "a_b", "\ne_1 * f_2 = \\frac{1}{2}\n\n- g_3\n")
        ]
        for kept in ("for $5 and $10", r"Broken: $\frac{$"):
            await expect(tab.answers).to_contain_text(kept)
        boxes = tab.answers.get_by_role("checkbox")
        assert [await box.is_checked() for box in await boxes.all()] == [True, False]

        home.line.hold(after_pieces=6)
        await tab.say("Code")
        await expect(tab.draft.locator(".code-word").first).to_have_text("def")
        home.line.release()
        await expect(tab.answers).to_have_count(2)
        code = tab.answers.last.locator("pre")
        wide = "(pre) => pre.scrollWidth > pre.clientWidth"
        assert await code.evaluate(wide)
        wrap = tab.answers.last.get_by_role("button", name="Wrap long lines")
        await wrap.click()
        await expect(wrap).to_have_attribute("aria-pressed", "true")
        assert not await code.evaluate(wide)


async def test_conversations_are_found_by_day_and_words_and_exported(visit: Visit) -> None:
    async with visit(says("The heron lands."), says("Two.")) as (_, tab):
        await tab.ask("First", "The heron lands.")
        await tab.new_chat()
        await tab.ask("Second", "Two.")
        await expect(tab.page.locator("#conversations").get_by_role("heading")).to_have_text(["Today"])
        search = tab.page.get_by_role("searchbox", name="Search conversations")
        links = tab.page.locator("#conversations .chat-link")
        for words, found in (("sec", ["Second"]), ("HERON", ["First"]), ("", ["Second", "First"])):
            await search.fill(words)
            await expect(links).to_have_text(found)
        await search.fill("nowhere")
        await expect(tab.page.get_by_text("Nothing found.")).to_be_visible()
        await search.press("Escape")
        async with tab.page.expect_download() as download:
            await tab.choose("First", "Export")
        exported = Path(await (await download.value).path()).read_text(encoding="utf-8")
        assert exported.startswith("# First\n")
        assert exported.index("You · ") < exported.index("Helper · ") < exported.index("The heron lands.")


async def test_page_new_chat_describes_agents_and_is_installable(visit: Visit) -> None:
    async with visit(says("[1, 2]"), agents=AGENTS) as (_, tab):
        picker = tab.page.get_by_role("combobox", name="Agent")
        await expect(tab.page.get_by_text("Writes code.")).to_be_hidden()
        await picker.select_option(label="Coder")
        await expect(tab.page.get_by_role("heading", name="Coder")).to_be_visible()
        await expect(tab.page.get_by_text("Writes code.")).to_be_visible()
        await tab.page.get_by_role("button", name="Sort a list").click()
        await tab.is_answered("[1, 2]")
        await expect(tab.answers).to_contain_text("Coder")
        manifest = await tab.page.evaluate(
            "fetch(document.querySelector('link[rel=manifest]').href).then((answer) => answer.json())"
        )
        assert (manifest["display"], len(manifest["icons"])) == ("standalone", 2)
        assert await tab.page.evaluate("fetch('web/icon.png').then((answer) => answer.ok)")


async def test_each_person_sees_his_own_and_the_operator_reads_all(browser: Browser, tmp_path: Path) -> None:
    tokens = {person: person[0] * 40 for person in ("operator", "ann", "bob")}
    users = f"users: {{ ann: {tokens['ann']}, bob: {tokens['bob']} }}"
    more = f"server: {{ host: 0.0.0.0, adminToken: {tokens['operator']}, {users} }}"
    script = [says("Noted, Ann."), says("Hi Bob.")]
    async with house(tmp_path, script=script, more=more) as home:
        for person, words, answer in (("ann", "The heron", "Noted, Ann."), ("bob", "Hello", "Hi Bob.")):
            async with visitor(browser, home, address=home.url) as tab:
                tab.watch.expects("status of 401")
                await expect(tab.page.locator("#sign-in")).not_to_contain_text("server.")
                await tab.sign_in(tokens[person])
                await expect(tab.page.get_by_role("group", name="Signed in as")).to_contain_text(person)
                await tab.ask(words, answer)
                await expect(tab.conversations.get_by_role("link")).to_have_text([words])
                await expect(tab.page.get_by_role("link", name="All sessions")).to_be_hidden()
        async with visitor(browser, home, address=home.url) as tab:
            tab.watch.expects("status of 401")
            await tab.sign_in(tokens["operator"])
            await expect(tab.page.get_by_role("group", name="Signed in as")).to_contain_text("Operator")
            await expect(tab.conversations.get_by_role("link")).to_have_count(0)
            await tab.page.get_by_role("link", name="All sessions").click()
            view = tab.page.locator("#view")
            await expect(view.get_by_role("row")).to_have_text(
                [re.compile("Agent"), re.compile("Hello.*helper"), re.compile("The heron")]
            )
            await view.get_by_role("link", name="The heron").click()
            await expect(view).to_contain_text("Noted, Ann.")
