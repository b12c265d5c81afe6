"""`ask`: put a question with choices to a person, and get what they chose.

The question is asked like an approval: the call waits in the database, the turn ends, and the answer starts another turn
whose first call is this one. Only then `run` is called, and its result is the answer.
"""

import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import Field

from tools.tool import Arguments, Call, Subject, ToolError, ToolResult, repeats

NAME = "ask"
OPTIONS_MAX = 10
QUESTION_CHARS_MAX = 2_000
OPTION_CHARS_MAX = 200
MINUTES_MAX = 7 * 24 * 60
_NUMBER = re.compile(r"[(\[]?(\d{1,2})[.)\]、。]?")
_BETWEEN = re.compile(r"\s*[,，、;；\n]\s*")


class AskArguments(Arguments):
    question: str = Field(min_length=1, max_length=QUESTION_CHARS_MAX, description="The question, without its options.")
    options: list[str] = Field(
        min_length=2,
        max_length=OPTIONS_MAX,
        description=f"2 to {OPTIONS_MAX} different answers to choose from, a few words each.",
    )
    many: bool = Field(default=False, description="Whether several options may be chosen.")
    free: bool = Field(default=False, description="Whether any other text is an answer, too.")
    who: Literal["asker", "anyone"] = Field(
        default="asker", description="Who may answer: the person you are answering, or anyone in the chat."
    )
    minutes: int = Field(default=60, ge=1, le=MINUTES_MAX, description="How long to wait for the answer.")

    def chosen(self, text: str) -> tuple[int, ...]:
        """Return the positions, from 1, that a typed answer names by number or text; empty if it names anything else.
        Case, width and surrounding spaces do not matter."""
        if number := self._position(text):
            return (number,)
        if not self.many:
            return ()
        for words in (_BETWEEN.split(text.strip()), text.split()):
            positions = [self._position(word) for word in words]
            if all(positions):
                return tuple(sorted(set(positions)))
        return ()

    def _position(self, text: str) -> int:
        typed = folded(text)
        known = [folded(option) for option in self.options]
        if typed in known:
            return known.index(typed) + 1
        match = _NUMBER.fullmatch(typed)
        number = int(match[1]) if match else 0
        return number if number <= len(known) else 0


def folded(text: str) -> str:
    """Normalise a text so that typed and offered options compare equal."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenAnswer:
    """`text` was typed by the person and is sanitised; `source` names their message. `external`: a person who may not have
    the turn's rights typed it."""

    chosen: tuple[str, ...]
    text: str
    by: str
    source: str
    external: bool = False


class Answers(Protocol):
    """The answers that people gave; the gateway supplies it."""

    async def answer(self, call: Call) -> GivenAnswer:
        """Return the answer to the question that the call asks. Raises ToolError."""


@dataclass(frozen=True, slots=True)
class AskTool:
    answers: Answers

    spec = AskArguments.spec(
        NAME,
        summary="ask the person a question with choices, and wait for the answer",
        description=(
            "Shows a question with its options as buttons or a form; typing a number or a text works, too. The turn then "
            "ends, and continues with the answer: chosen lists the chosen options, text is what was typed instead, by is "
            "the person. Use it when the next step depends on a choice; ask one question at a time."
        ),
        effect="safe",
    )

    def parse(self, raw: Mapping[str, Any]) -> AskArguments:
        arguments = AskArguments.parse(raw)
        known = [folded(option) for option in arguments.options]
        if not all(known) or not arguments.question.strip():
            raise ToolError("INVALID_ARGUMENT", "'question' and each of 'options' must not be blank")
        if len(set(known)) < len(known):
            raise ToolError("INVALID_ARGUMENT", "'options' must differ in more than case and spaces")
        if any(len(option) > OPTION_CHARS_MAX for option in arguments.options):
            raise ToolError("INVALID_ARGUMENT", f"each of 'options' may have at most {OPTION_CHARS_MAX} characters")
        return arguments

    def subject(self, arguments: AskArguments, call: Call) -> Subject:
        return Subject(text="\n".join((arguments.question, *arguments.options)), facts={})

    async def run(self, arguments: AskArguments, call: Call) -> ToolResult:
        answer = await self.answers.answer(call)
        repeats(answer.source)
        result = {"chosen": answer.chosen, "text": answer.text, "by": answer.by}
        return ToolResult(content=(json.dumps(result, ensure_ascii=False),), external=answer.external)
