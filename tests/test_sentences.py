"""Chinese sentences of the gateway, wherever they stand, are punctuated as Chinese is."""

import ast
import re
from collections.abc import Iterator

from tests.test_house import ROOT

HAN = "[〇㐀-䶿一-鿿]"
HALF = re.compile(rf"{HAN}[,:;!?()]|[,:;!?()]{HAN}|[。，；：！？][()]|[,:;!?()][（）]")
FOLDERS = ("gateway", "agents", "tools", "skills", "channels")


GLOSS = re.compile(rf"\({HAN}+\)")
"""In an English sentence, the words of a Chinese console."""
EXPRESSION = re.compile(rf"{HAN}-{HAN}|\(\?:|\\b")


def texts() -> Iterator[tuple[str, str]]:
    """Every text with Chinese in it, and where it stands; expressions are none."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            documentation = {
                id(node.value)
                for node in ast.walk(tree)
                if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            }
            for node in ast.walk(tree):
                if not isinstance(node, ast.Constant) or id(node) in documentation or not isinstance(node.value, str):
                    continue
                if re.search(HAN, node.value) and not EXPRESSION.search(node.value):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", GLOSS.sub("", node.value)


def test_no_chinese_sentence_has_half_width_punctuation() -> None:
    found = [f"{where}: {text}" for where, text in texts() if HALF.search(text)]
    assert found == []
