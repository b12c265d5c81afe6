"""The animated picture of the README: `make film` plays it anew, into docs/images/clawgate.gif.

Everything in it is real: the shipped config, a gateway that is really killed, platforms that show what they were told,
and a model that says the same each time. Ann has the bot, Ben is let in, a command waits for Ann, and an answer survives
`kill -9`. It is no test: nobody compares pixels.
"""

import asyncio
import io
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image
from playwright.async_api import Locator, Page, ViewportSize, async_playwright, expect

from tests.browser.chromium import FLAGS, MISSING, light, missing
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.script import calls, says
from tests.line import Line
from tests.loopback import serve_on_loopback
from tests.rehearsal.program import ROOT
from tests.rehearsal.server import page_app
from tests.rehearsal.stage import Stage, stage

PICTURE = ROOT / "docs" / "images" / "clawgate.gif"
BYTES_MAX = 2_500_000
COLOURS = 256
SIZE: ViewportSize = {"width": 920, "height": 580}
SCALE = 1.5
PORT = 8080
KEY = "film-key-of-no-value"
WORKSPACE = Path("data", "workspaces", "assistant")
SALES = "Sencha,May,412\nAssam,May,388\nSencha,June,455\nAssam,June,361\n"
SUM = "awk -F, '{s[$1]+=$3} END {for (t in s) print t, s[t]}' sales.csv"
ASKED = "Which tea sells best? See sales.csv"
ANSWER = """\
**Sencha** sells best: 867 packs in two months.

Assam follows with 749, and it fell from 388 in May to 361 in June. Sencha rose from 412 to 455.
"""
SHOWN_PIECES = 8
SEEN = """() => {
    const main = document.querySelector("main").cloneNode(true);
    main.querySelectorAll(".folded, span.log").forEach((hidden) => hidden.remove());
    return main.textContent;
}"""
SURE = ("#12805c", "#c98a00", "#c4272d", "#155fb5", "#7ee2a8", "#ff7a7a", "#fff", "#e9ecf2")
"""Colours of small things, which the palette must have, and how much of the sheet they get."""
PATCH = 60
SCRIPT = (
    calls(("exec", {"command": SUM})),
    says("I would like to add up sales.csv. May I?"),
    says(ANSWER),
    says(ANSWER),
)
"""The third answer is the one that is cut."""
STYLE = """
body { background: #e9ecf2; }
body > header { position: absolute; left: 12px; bottom: 14px; width: 306px; padding: 0; z-index: 1; }
body > header :is(h1, nav), #about, #tabs, #guide, #phone-wanglei, #phone-lina { display: none; }
#life { flex: 1; min-width: 0; overflow: hidden; padding-left: 8px; }
#kill { font-size: 15px; padding: 9px 18px; opacity: 1; }
main { grid-template: minmax(0, 1fr) / 306px minmax(0, 1fr); padding: 0 12px 12px; }
#terminal { grid-area: 1 / 1; margin-bottom: 52px; }
#terminal pre { font-size: 12px; overflow: hidden; }
#terminal h2, #terminal span.log, .typing #terminal span:not(.typed) { display: none; }
#terminal span { display: block; overflow: hidden; text-overflow: ellipsis; white-space: pre; }
#terminal .claim { white-space: pre-wrap; padding-left: 13ch; text-indent: -13ch; }
#phones { grid-area: 1 / 2; grid-template-columns: 1fr 1fr; overflow: hidden; }
.chats, .attach, .message small { display: none; }
.phone header { border-bottom: 1px solid var(--line); padding-bottom: 9px; }
.log { overflow: hidden; }
.text .folded { -webkit-line-clamp: 1; }
.message { max-width: 94%; }
:focus-visible { outline: none; }
form .text:focus-visible { border-color: var(--accent); }
#film { order: -1; display: flex; align-items: baseline; gap: 12px; padding: 14px 18px 12px; }
#film { font-size: 23px; font-weight: 700; letter-spacing: -.01em; }
#film small { font-size: 16px; font-weight: 500; color: var(--faint); letter-spacing: 0; }
.tap { background: var(--accent) !important; color: #fff !important; box-shadow: 0 0 0 6px #155fb544; }
#kill.tap { background: #8d1218 !important; box-shadow: 0 0 0 6px #c4272d55; }
"""


@dataclass
class Film:
    """Frames and how long each is shown, in milliseconds."""

    page: Page
    folder: str
    frames: list[Image.Image] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    async def caption(self, words: str, more: str = "") -> None:
        await self.page.evaluate(
            """([words, more]) => {
                const small = Object.assign(document.createElement("small"), { textContent: more });
                document.querySelector("#film").replaceChildren(words, small);
            }""",
            [words, more],
        )

    async def shoot(self, milliseconds: int) -> None:
        """Raises ValueError where a path of this machine would be seen."""
        if self.folder in await self.page.evaluate(SEEN):
            raise ValueError(f"a frame shows {self.folder}")
        taken = Image.open(io.BytesIO(await self.page.screenshot(caret="hide"))).convert("RGB")
        if self.frames and taken.tobytes() == self.frames[-1].tobytes():
            self.lengths[-1] += milliseconds
            return
        self.frames.append(taken)
        self.lengths.append(milliseconds)

    async def poster(self, milliseconds: int) -> None:
        """Make what is seen now the first frame, which is all that some readers get."""
        await self.shoot(milliseconds)
        self.frames.insert(0, self.frames.pop())
        self.lengths.insert(0, self.lengths.pop())

    async def tap(self, button: Locator) -> None:
        """Show the press, and press."""
        await button.evaluate("(button) => button.classList.add('tap')")
        await self.shoot(500)
        await button.evaluate("(button) => { button.classList.remove('tap'); button.click(); }")

    async def write(self, phone: Locator, text: str) -> None:
        """Type, and send."""
        box = phone.get_by_role("textbox")
        for part in (len(text) // 3, 2 * len(text) // 3, len(text)):
            await box.fill(text[:part])
            await self.shoot(180)
        await self.shoot(250)
        await box.press("Enter")
        await expect(phone.locator('[data-author="me"]').last).to_contain_text(text)
        await self.shoot(350)

    def save(self, path: Path) -> None:
        """As a GIF with one palette for all frames, so that what does not change costs nothing."""
        step = max(1, len(self.frames) // 8)
        strip = [frame.resize((frame.width // 2, frame.height // 2)) for frame in self.frames[::step]]
        sheet = Image.new("RGB", (strip[0].width, strip[0].height * len(strip)))
        for at, frame in enumerate(strip):
            sheet.paste(frame, (0, at * frame.height))
        for at, colour in enumerate(SURE):
            sheet.paste(colour, (at * PATCH, 0, (at + 1) * PATCH, PATCH))
        palette = sheet.quantize(COLOURS, method=Image.Quantize.MEDIANCUT)
        first, *rest = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in self.frames)
        first.save(path, save_all=True, append_images=rest, duration=self.lengths, loop=0, optimize=False, disposal=1)


async def play(film: Film, scene: Stage, line: Line) -> None:
    page = film.page
    ann, ben = page.locator("#phone-ann"), page.locator("#phone-ben")
    told = '[data-author="bot"]'
    await expect(page.locator("#terminal .claim")).to_be_visible()
    await film.caption("Start it.", "One command. It prints a claim code.")
    await page.evaluate("document.body.classList.add('typing')")
    await film.shoot(900)
    await page.evaluate("document.body.classList.remove('typing')")
    await film.shoot(1500)

    await film.caption("Claim it from your phone.", "Now the bot is yours.")
    await film.write(ann, f"/claim {scene.program.claim}")
    await expect(ann.locator(told)).to_have_count(1)
    await film.shoot(1600)

    await film.caption("A stranger writes. You decide.")
    await film.write(ben, "Hi! May I use you?")
    await expect(ben.locator(told)).to_have_count(1)
    let_in = ann.get_by_role("button", name="Let in")
    await expect(let_in).to_be_visible()
    await film.shoot(1500)
    await film.tap(let_in)
    await expect(ben.locator(told)).to_have_count(2)
    await expect(let_in).to_have_count(0)
    await film.shoot(1400)

    await film.caption("Commands wait for your tap.", "Then they run in a sandbox.")
    await film.write(ann, ASKED)
    allow = ann.get_by_role("button", name="Allow once")
    await expect(allow).to_be_visible()
    await expect(ann.locator(told).last).to_contain_text("May I?")
    await top(ann.locator(".message").filter(has=page.get_by_role("button", name="Allow once")))
    await film.shoot(1700)
    line.hold(after_pieces=SHOWN_PIECES)
    await film.tap(allow)
    answer = ann.locator(told).filter(has_text="Sencha sells best")
    await expect(allow).to_have_count(0)
    await expect(answer).to_have_count(1)
    await end(ann)
    await film.caption("Now kill it in the middle of the answer.")
    await film.shoot(1400)

    await film.tap(page.locator("#kill"))
    await expect(page.locator("#life")).to_have_attribute("data-life", "killed")
    await film.shoot(1500)
    line.release()
    await film.caption("Start it again.")
    await expect(page.locator("#life")).to_have_attribute("data-life", "up")
    await film.shoot(900)
    await film.caption("The answer still arrives. Once.", "Nothing lost, nothing doubled.")
    await expect(answer).to_contain_text("455")
    await expect(answer).to_have_count(1)
    await end(ann)
    await film.shoot(3200)
    await film.caption(
        "An AI agent in your team's chat.", "Kill it in the middle of an answer: the answer still arrives."
    )
    await film.poster(1800)


async def top(message: Locator) -> None:
    await message.evaluate(
        "(node) => (node.parentElement.scrollTop = node.offsetTop - node.parentElement.offsetTop - 10)"
    )


async def end(phone: Locator) -> None:
    await phone.locator(".log").evaluate("(log) => (log.scrollTop = log.scrollHeight)")


@asynccontextmanager
async def scenery(folder: Path) -> AsyncIterator[tuple[Stage, Line, str]]:
    """The rehearsal with the scripted model, and the address of its page."""
    model = AnthropicEmulator(SCRIPT, api_key=KEY)
    line = Line(model.app)
    for each in (*reversed(WORKSPACE.parents), WORKSPACE):
        (folder / each).mkdir(mode=0o700, exist_ok=True)
    (folder / WORKSPACE / "sales.csv").write_text(SALES, encoding="utf-8")
    async with serve_on_loopback(line) as model_url:
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "ANTHROPIC_API_KEY": KEY}
        async with (
            stage(folder, env | {"ANTHROPIC_BASE_URL": model_url}, port=free(PORT)) as scene,
            serve_on_loopback(page_app(scene)) as page,
        ):
            yield scene, line, page
            line.release()


def free(port: int) -> int:
    """The port, or 0 where another program has it."""
    with suppress(OSError), socket.create_server(("127.0.0.1", port)):
        return port
    return 0


async def main() -> None:
    if missing():
        sys.exit(MISSING)
    with tempfile.TemporaryDirectory() as folder:
        async with async_playwright() as playwright, scenery(Path(folder)) as (scene, line, address):
            browser = await playwright.chromium.launch(executable_path=light(), args=FLAGS)
            context = await browser.new_context(viewport=SIZE, device_scale_factor=SCALE, bypass_csp=True)
            page = await context.new_page()
            await page.goto(address)
            await page.add_style_tag(content=STYLE)
            await page.evaluate("document.body.prepend(Object.assign(document.createElement('p'), { id: 'film' }))")
            film = Film(page, folder)
            expect.set_options(timeout=60_000)
            await play(film, scene, line)
            await browser.close()
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    film.save(PICTURE)
    size, seconds = PICTURE.stat().st_size, sum(film.lengths) / 1_000
    print(f"{PICTURE.name}: {len(film.frames)} frames, {seconds:.0f} s, {size:,} bytes")  # noqa: T201 - a command line
    if size > BYTES_MAX:
        sys.exit(f"{PICTURE.name} has more than {BYTES_MAX:,} bytes.")


if __name__ == "__main__":
    asyncio.run(main())
