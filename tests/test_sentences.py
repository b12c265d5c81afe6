"""Chinese sentences, in the code, on the page and in the docs, are punctuated as Chinese is and use one word per thing."""

import ast
import re
from collections.abc import Iterator

from tests.parsed import ROOT, parsed

HAN = "[〇㐀-䶿一-鿿]"
HALF = re.compile(rf"{HAN}[,:;!?()]|[,:;!?()]{HAN}|[。，；：！？][()]|[,:;!?()][（）]")


GLOSS = re.compile(rf"\({HAN}+\)")
"""In an English sentence, the words of a Chinese console."""
SENTENCE = re.compile("[a-z]{3,} [a-z]{3,}")
EXPRESSION = re.compile(rf"{HAN}-{HAN}|\(\?:|\\b")


def texts() -> Iterator[tuple[str, str]]:
    """Every text with Chinese in it, and where it stands; expressions are none."""
    for path, nodes in parsed().items():
        documentation = {
            id(it.value) for it in nodes if isinstance(it, ast.Expr) and isinstance(it.value, ast.Constant)
        }
        for node in nodes:
            if not isinstance(node, ast.Constant) or id(node) in documentation or not isinstance(node.value, str):
                continue
            if re.search(HAN, node.value) and not EXPRESSION.search(node.value):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", GLOSS.sub("", node.value)


def test_no_chinese_sentence_has_half_width_punctuation() -> None:
    found = [f"{where}: {text}" for where, text in texts() if HALF.search(text)]
    assert found == []


LOSERS = re.compile("频道|服务商|运营者|运维者|管理者|放行|助手")
"""The words that docs/glossary.md decided against."""
NAMES = re.compile("代码助手|小助手|团队助手|团队的助手|开发助手")
CODE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)", re.DOTALL)


def written() -> Iterator[tuple[str, str]]:
    """The lines with Chinese outside of the code: the page's words, the Chinese docs, the shipped config; without Markdown's
    code."""
    files = (*ROOT.glob("channels/web/page/**/words.js"), *ROOT.glob("docs/*.zh-CN.md"), ROOT / "README.zh-CN.md")
    for path in (*files, ROOT / "config.yaml", *ROOT.glob("agents/seeds/zh/*.md"), *ROOT.glob("docs/examples/*.yaml")):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".md":
            text = CODE.sub(lambda it: "`" + "\n" * it[0].count("\n"), text)
        for number, line in enumerate(text.splitlines(), start=1):
            if re.search(HAN, line):
                yield f"{path.relative_to(ROOT)}:{number}", line


def test_no_chinese_sentence_of_the_page_has_half_width_punctuation() -> None:
    words = [
        (where, text) for where, line in written() if "words.js" in where for text in re.findall(r'"([^"]+)"', line)
    ]
    assert len(words) > 500
    assert [f"{where}: {text}" for where, text in words if HALF.search(text)] == []


def test_every_chinese_text_has_the_glossarys_words() -> None:
    found = [f"{where}: {text}" for where, text in (*texts(), *written()) if LOSERS.search(NAMES.sub("", text))]
    assert [it for it in found if not it.startswith("tests/")] == []


def pairs() -> Iterator[tuple[str, ast.Call]]:
    for path, nodes in parsed().items():
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Bilingual":
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def literal(node: ast.expr) -> str:
    """The words that are written in a text, without what is filled in."""
    return "".join(str(it.value) for it in ast.walk(node) if isinstance(it, ast.Constant))


def filled_in(node: ast.expr) -> set[str]:
    return {it.id for it in ast.walk(node) if isinstance(it, ast.Name)}


def test_every_text_for_the_operator_has_its_chinese() -> None:
    """A finding takes nothing but a `Bilingual`; one alone is for names, paths and a vendor's words."""
    sentences = [(where, call) for where, call in pairs() if call.args and SENTENCE.search(literal(call.args[0]))]
    assert len(sentences) > 100
    assert [where for where, call in sentences if not re.search(HAN, "".join(map(literal, call.args[1:])))] == []


def test_both_texts_are_filled_in_with_the_same() -> None:
    own = {"en", "zh", "added", "verb"}  # the texts themselves, and words that English alone needs
    uneven = [
        (where, difference)
        for where, call in pairs()
        if len(call.args) == 2 and all(isinstance(it, ast.JoinedStr) for it in call.args)
        if (difference := (filled_in(call.args[0]) ^ filled_in(call.args[1])) - own)
    ]
    assert uneven == []
