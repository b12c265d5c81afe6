"""docs/texts.md, made from the code: every text that the gateway itself says in a chat, in English and in Chinese.

`python -m tests.texts` writes the page; a house test fails while it is older than the code. A pair is two texts beside
each other, the second one in Chinese: the arguments of a call, `en=` and `zh=`, a tuple, or the values of a dict with the
keys `en` and `zh`. What a text is filled with is in braces.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from gateway.config.commands import WORDS
from tests.parsed import ROOT, parsed

PAGE = ROOT / "docs" / "texts.md"
NO_PLACE = "skills/"
NOT_IN_A_CHAT = re.compile(r"doctor|/demo/|/causes|access\.py|app/serve|config|/(cli|operate|http|store|prompt)/")
SHORTEST = 3
"""Characters of the English text; less is a unit that another text is filled with."""
SENTENCE = 30
"""Characters of a text that is a sentence, though another one is before it."""
_HAN = re.compile("[一-鿿]")
_OPENING = """\
# What the bot says by itself

Made from the code by `python -m tests.texts`; do not edit. 本页由代码生成。

A model writes the answers. These texts are the gateway's own: its answers to commands, the lines beneath an answer, and
what it says when there is no answer. It chooses the language for each person and chat. What a text is filled with is in
braces.
"""

Pair = tuple[str, str]


def pairs(nodes: Iterable[ast.AST]) -> list[Pair]:
    """Each pair once, in the source's order."""
    found: list[Pair] = []
    nodes = list(nodes)
    named = [it for it in nodes if isinstance(it, ast.Assign) and isinstance(it.targets[0], ast.Name)]
    expressions = [node for node in nodes if isinstance(node, ast.expr)]
    for node in sorted(expressions, key=lambda node: (node.lineno, node.col_offset)):
        for en, zh in _beside(node):
            pair = (_written(_assigned(en, named)), _written(_assigned(zh, named)))
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
    rows = "\n".join(f"| `/{name}`: {_cell(en)} | {_cell(zh)} |" for name, (_, en, zh) in WORDS.items())
    commands = f"\n## gateway/config/commands.py\n\n| English | 中文 |\n|---|---|\n{rows}\n"
    return _OPENING + "".join(sorted((*sections, commands)))


def _is_pair(en: str, zh: str) -> bool:
    begins = en[:1] not in (" ", ",", ";") or len(en) >= SENTENCE
    return len(en) >= SHORTEST and begins and bool(_HAN.search(zh)) and not _HAN.search(en)


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
        case ast.Dict(keys=keys, values=values):
            by_key = {it.value: value for it, value in zip(keys, values, strict=True) if isinstance(it, ast.Constant)}
            match by_key.get("en"), by_key.get("zh"):
                case ast.Tuple(elts=english), ast.Tuple(elts=chinese):
                    yield from zip(english, chinese, strict=True)
                case ast.expr() as en, ast.expr() as zh:
                    yield en, zh


def _assigned(node: ast.expr, named: Iterable[ast.Assign]) -> ast.expr:
    """The text that a variable was given last before its use."""
    if not isinstance(node, ast.Name):
        return node
    before = [it for it in named if ast.unparse(it.targets[0]) == node.id and it.lineno < node.lineno]
    return max(before, key=lambda it: it.lineno).value if before else node


def _written(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return re.sub("{(en|zh)}", "{unit}", text)
        case ast.JoinedStr(values=parts):
            return "".join(_written(part) for part in parts)
        case ast.FormattedValue(value=value):
            return _placeholder(value)
        case ast.BinOp(left=left, right=right, op=ast.Add()):
            return _written(left) + _written(right)
        case _:
            return ""


def _placeholder(node: ast.expr) -> str:
    """What a text is filled with, as a word in braces; one of two texts is the first of them."""
    match node:
        case ast.IfExp(body=body):
            return _placeholder(body)
        case ast.Constant() | ast.JoinedStr():
            return _written(node)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            word = name.strip("_").lower().replace("_", " ")
            return "{" + ("…" if word in ("en", "zh") else word) + "}"
        case ast.Subscript(value=value, slice=key):
            return (
                "{" + key.value + "}"
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
                else _placeholder(value)
            )
        case ast.BoolOp(values=[first, *_]):
            return _placeholder(first)
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(key)), *_]):
            return "{" + key + "}"
        case ast.Call(func=ast.Attribute(value=ast.Name() | ast.Attribute() as value, attr="upper" | "replace")):
            return _placeholder(value)
        case ast.Call(func=ast.Name(), args=[first, *_]):
            return _placeholder(first)
    return "{…}"


def _cell(text: str) -> str:
    return text.strip().replace("\\", "\\\\").replace("|", "\\|").replace("<", "\\<").replace("\n", "<br>")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
