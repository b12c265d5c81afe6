"""axe-core's rules, our own and the page's width, asked of what a tab shows right now: on a phone and at a desk, by day and
by night."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.async_api import ViewportSize

from tests.browser.tab import Tab


class Look(NamedTuple):
    width: Literal["phone", "desk"]
    scheme: Literal["light", "dark"]


Looks = tuple[Look, ...]
WIDTHS: Final[dict[str, ViewportSize]] = {
    "phone": {"width": 390, "height": 844},
    "desk": {"width": 1440, "height": 900},
}
DIAGONAL = (Look("phone", "light"), Look("desk", "dark"))
OTHERS = (Look("phone", "dark"), Look("desk", "light"))
LOOKS = [pytest.param(DIAGONAL, id="diagonal"), pytest.param(OTHERS, id="others", marks=pytest.mark.long)]
"""Both widths and both themes in `make test`; `make test-all` has the other two pairs. A page is at its desk at the end."""
LIST = "#sidebar"
"""The list of conversations, which `test_web_sidebar` looks at."""
RULES = (Path(__file__).parent / "accessibility.js").read_text(encoding="utf-8")
VIOLATIONS = """async (beside) => {
    const place = beside ? { exclude: [[beside]] } : document;
    const { violations } = await axe.run(place, { resultTypes: ["violations"] });
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html.slice(0, 160)).join(" | ")}`);
}"""


async def wrong(tab: Tab, looks: Looks = (), *, beside: str = "") -> list[str]:
    """What is wrong with the page in each of these looks, else in its own, `beside` a part of it."""
    if not looks:
        return await _wrong(tab, beside)
    return [f"{name}: {it}" async for name in in_turn(tab, looks) for it in await _wrong(tab, beside)]


async def unreadable(tab: Tab, looks: Looks) -> list[str]:
    """What our own rules alone find in each of these looks."""
    return [f"{name}: {it}" async for name in in_turn(tab, looks) for it in await tab.page.evaluate(RULES)]


async def in_turn(tab: Tab, looks: Looks) -> AsyncIterator[str]:
    for look in looks:
        await tab.page.set_viewport_size(WIDTHS[look.width])
        await tab.page.emulate_media(color_scheme=look.scheme)
        yield " ".join(look)


async def _wrong(tab: Tab, beside: str) -> list[str]:
    page = tab.page
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE_SCRIPT)
    return [*await page.evaluate(VIOLATIONS, beside), *await page.evaluate(RULES), *await tab.sticking_out()]
