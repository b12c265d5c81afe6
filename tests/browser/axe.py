"""axe-core's rules, on what a tab shows right now beside the list of conversations, which `test_web_sidebar` looks at."""

import pytest
from axe_playwright_python.base import AXE_SCRIPT

from tests.browser.tab import Tab

WIDTHS = {"phone": {"width": 390, "height": 844}, "desk": {"width": 1440, "height": 900}}
LOOKS = [
    pytest.param(width, scheme, marks=() if (width == "desk") == (scheme == "dark") else pytest.mark.long)
    for width in WIDTHS
    for scheme in ("light", "dark")
]
"""Both widths and both themes, in two tests of four; `make test-all` has the others."""
VIOLATIONS = """async () => {
    const { violations } = await axe.run({ exclude: [["#sidebar"]] }, { resultTypes: ["violations"] });
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html.slice(0, 160)).join(" | ")}`);
}"""


async def no_rule_is_broken(tab: Tab) -> None:
    await tab.page.evaluate(AXE_SCRIPT)
    violations = await tab.page.evaluate(VIOLATIONS)
    assert violations == [], violations
    assert await tab.sticking_out() == []
