"""What the page's modules may look like so that they can be one file; that it works is seen in the browser."""

import re

import pytest

from gateway.web.door import PAGE, bundled

MODULES = {path.relative_to(PAGE).as_posix(): path.read_text("utf-8") for path in PAGE.rglob("*.js")}


@pytest.mark.parametrize("entry", ["app.js", "console/console.js"])
def test_every_import_and_export_of_the_page_has_the_one_known_form(entry: str) -> None:
    whole = bundled(MODULES, entry)
    assert re.findall(r"^(?:import|export)\b.*|\bimport\(['\"].*|import\.meta.*", whole, re.MULTILINE) == []
    order = re.findall(r"^// (\S+\.js)$", whole, re.MULTILINE)
    assert order[-1] == entry
    assert len(order) == len(set(order))


def test_a_module_stands_once_behind_what_it_imports_and_may_rename_it() -> None:
    modules = {
        "a.js": (
            'import { word as text } from "./deep/b.js";\nimport { one } from "./c.js";\nexport const two = text + one;\n'
        ),
        "deep/b.js": 'import { one } from "../c.js";\nexport function word() {}\nexport async function later() {}\n',
        "c.js": "export const one = 1;\nexport class It {}\n",
    }
    assert (
        bundled(modules, "a.js")
        == """\
// c.js
const $c_js = (() => {
const one = 1;
class It {}

return { one, It };
})();
// deep/b.js
const $deep_b_js = (() => {
const { one } = $c_js;
function word() {}
async function later() {}

return { word, later };
})();
// a.js
const $a_js = (() => {
const { word: text } = $deep_b_js;
const { one } = $c_js;
const two = text + one;

return { two };
})();
"""
    )
