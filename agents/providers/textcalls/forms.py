"""The forms in which a call may be written as text: for each, the opening to look for and the reader of the rest.

One list for models that are asked to write calls so, one for models whose server let a call slip through as text, and
one for what is a call only where it stands alone. What a form says is in `grammar`.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agents.providers.textcalls.grammar import BLOCK, FUNCTION, HARMONY, MARKER, TOOL_CALLS, FormKind
from agents.providers.textcalls.readers import Fixed, JsonAfter, Reader, Rest, Tagged, Until

_FIRST_KEY = r'\{\s*"(?:name|arguments|parameters)"\s*:'
_FIRST_KEY_BEGUN = r'\{\s*(?:"[a-z]{0,10}(?:"\s*)?)?'


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    kind: FormKind
    opening: str
    reader: Callable[[], Reader]
    bare: bool = False
    """It can be ordinary text as well, so it counts only where it stands alone and is whole."""


def prompted_forms() -> tuple[Form, ...]:
    """What a model is asked to write that has no tools of its own; a result that it invents ends its answer."""
    return (
        _tool_call(),
        Form(kind="never", opening="</tool_call>", reader=lambda: Fixed("</tool_call>")),
        Form(kind="never", opening="<tool_response", reader=Rest),
        Form(kind="never", opening="</tool_response>", reader=lambda: Fixed("</tool_response>")),
    )


def tag_forms() -> tuple[Form, ...]:
    """What models write whose server did not recognise their call; unmistakable, so people never see it."""
    return (
        _tool_call(),
        Form(kind="never", opening="</tool_call>", reader=lambda: Fixed("</tool_call>")),
        Form(kind="function", opening="<function=", reader=_function),
        Form(kind="never", opening="<function_calls>", reader=lambda: Until("</function_calls>")),
        Form(kind="never", opening="<invoke ", reader=lambda: Until("</invoke>")),
        Form(kind="harmony", opening="<|channel|>commentary to=", reader=_harmony),
        Form(kind="tool_calls", opening="[TOOL_CALLS]", reader=_tool_calls),
        Form(kind="marker", opening="[tool:", reader=_marker),
    )


def bare_forms(names: Iterable[str]) -> tuple[Form, ...]:
    """What may be a call of these tools, if the answer is nothing else."""
    blocks = (Form(kind="block", opening=f"[{name}]", reader=_block(name), bare=True) for name in names)
    return (
        *blocks,
        Form(kind="bare", opening="{", reader=lambda: _bare(_FIRST_KEY, _FIRST_KEY_BEGUN), bare=True),
        Form(kind="bare", opening="[", reader=lambda: _bare(r"\[\s*" + _FIRST_KEY, _LIST_BEGUN), bare=True),
    )


_LIST_BEGUN = rf"\[\s*(?:{_FIRST_KEY_BEGUN})?"


def _tool_call() -> Form:
    header = re.compile("<tool_call>")
    stops = ("<tool_call>", "<tool_response")
    return Form(
        kind="tool_call",
        opening="<tool_call>",
        reader=lambda: Tagged(header, growing=header, closing="</tool_call>", stops=stops),
    )


def _function() -> Reader:
    growing = re.compile(r"<function=[^>\s]{0,120}")
    return Tagged(FUNCTION, growing=growing, closing="</function>", behind="</parameter>")


def _harmony() -> Reader:
    growing = r"<\|channel\|>commentary to=(?:(?!<\|message\|>).){0,300}(?:<\|message\|>\s*)?"
    return JsonAfter(HARMONY, growing=growing, closers=("<|call|>",), otherwise=len("<|channel|>commentary to="))


def _tool_calls() -> Reader:
    return JsonAfter(TOOL_CALLS, growing=r"\[TOOL_CALLS\]\s*", otherwise=len("[TOOL_CALLS]"))


def _marker() -> Reader:
    closers = ("[/{name}]", "[END_TOOL_REQUEST]")
    return JsonAfter(MARKER, growing=r"\[tool:[^\]\r\n]{0,130}(?:\]\s*)?", closers=closers)


def _block(name: str) -> Callable[[], Reader]:
    closers = (f"[/{name}]", "[END_TOOL_REQUEST]")
    return lambda: JsonAfter(BLOCK, growing=re.escape(f"[{name}]") + r"\s*", closers=closers, ends="must be closed")


def _bare(header: str, growing: str) -> Reader:
    return JsonAfter(re.compile(f"(?={header})"), growing=growing, ends="must be whole")
