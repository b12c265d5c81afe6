"""docs/texts.md, made from the code: every text that the gateway itself says in a chat, in English and in Chinese.

`python -m tests.texts` writes the page; a house test fails while it is older than the code. A pair is two texts beside
each other, the second one in Chinese: the arguments of a call, `en=` and `zh=`, or a tuple. What a text is filled with
stands in braces.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from tests.parsed import ROOT, parsed

PAGE = ROOT / "docs" / "texts.md"
NO_PLACE = "skills/"
NOT_IN_A_CHAT = re.compile(r"doctor|/demo/|/causes|access\.py|app/serve|config|/(cli|operate|http|store)/")
SHORTEST = 3
"""Characters of the English text; less is a unit that another text is filled with."""
_HAN = re.compile("[一-鿿]")
_OPENING = """\
# What the bot says by itself

Made from the code by `python -m tests.texts`; do not edit. 本页由代码生成。

A model writes the answers. These texts are the gateway's own: its answers to commands, the lines beneath an answer, and
what it says when there is no answer. It chooses the language for each person and chat. What a text is filled with
stands in braces.
"""

Pair = tuple[str, str]


def pairs(nodes: Iterable[ast.AST]) -> list[Pair]:
    """Each pair once, in the source's order."""
    found: list[Pair] = []
    expressions = [node for node in nodes if isinstance(node, ast.expr)]
    for node in sorted(expressions, key=lambda node: (node.lineno, node.col_offset)):
        for en, zh in _beside(node):
            pair = (_written(en), _written(zh))
            if _is_pair(*pair) and pair not in found:
                found.append(pair)
    return found


def page() -> str:
    """The whole page: a section for each file that has a pair."""
    sections = []
    for file, nodes in sorted(parsed().items()):
        name = file.relative_to(ROOT).as_posix()
        if name.startswith(NO_PLACE) or NOT_IN_A_CHAT.search(name) or not (found := pairs(nodes)):
            continue
        rows = "\n".join(f"| {_cell(en)} | {_cell(zh)} |" for en, zh in found)
        sections.append(f"\n## {name}\n\n| English | 中文 |\n|---|---|\n{rows}\n")
    return _OPENING + "".join(sections)


def _is_pair(en: str, zh: str) -> bool:
    return len(en) >= SHORTEST and en[0] not in " ,;" and bool(_HAN.search(zh)) and not _HAN.search(en)


def _beside(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    match node:
        case ast.Call(args=arguments, keywords=keywords):
            yield from pairwise(arguments)
            named = {it.arg: it.value for it in keywords}
            if "zh" in named and (en := named.get("en") or (arguments[-1] if arguments else None)):
                yield en, named["zh"]
        case ast.Tuple(elts=elements):
            yield from pairwise(elements)
        case ast.IfExp(body=zh, orelse=en):
            yield en, zh


def _written(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_written(part) for part in parts)
        case ast.FormattedValue(value=value):
            return "{" + ast.unparse(value) + "}"
        case ast.BinOp(left=left, right=right, op=ast.Add()):
            return _written(left) + _written(right)
        case _:
            return ""


def _cell(text: str) -> str:
    return text.strip().replace("\\", "\\\\").replace("|", "\\|").replace("<", "\\<").replace("\n", "<br>")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
