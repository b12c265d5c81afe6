"""Questions with choices: the calls of `ask`, as rows of the approvals, and who may answer them.

A question is an approval that the asker decides: it is asked, repeated after a crash, expired and cancelled like one, and
its `decision` is the answer. While it is open, `decision` has the options ticked by buttons, by the number of each press,
so a press that is processed twice counts once. A token carries no authority: the platform says who pressed.
"""

import json
from collections.abc import Collection, Sequence

from agents.language import Language
from agents.prompt.fences import harmless
from channels.bilingual import Bilingual
from channels.message import FORM_TEXT_CHARS_MAX, Button, ChoiceForm, MessageContext
from channels.plain import plain
from gateway.approvals.approvals import Approvals, id_of
from gateway.approvals.display import name_of, person
from gateway.approvals.notices import called, message_of
from gateway.state.ending import Reply
from gateway.state.runtime import Runtime
from gateway.store.approvals import Approval, Decider
from gateway.store.sessions import chat_of, person_of
from tools.ask import AskArguments, GivenAnswer
from tools.tool import Call, ToolError, turn_source

TOKEN = "ask:"
"""The tokens of a question's buttons begin with it: `ask:ID:NUMBER`, and `ask:ID:done` for the end of a selection."""
DONE = "done"
NOBODY = "the operator"
"""The requester of a turn without a person: anyone in its chat may answer."""
_SEVERAL = Bilingual("Choose one or more, then press Done.", "可多选，选好后点“完成”。")
_TYPE_SEVERAL = Bilingual("Choose one or more.", "可多选。")
_FREE = Bilingual("You can also type your own answer.", "也可以直接输入你的回答。")
_TYPED = Bilingual("Reply with a number or the text.", "请回复序号或选项文字。")
_DONE = Bilingual("Done", "完成")
_SUBMIT = Bilingual("Send", "提交")
_FIELD = Bilingual("Your own answer", "自己填写")
_LATE = Bilingual("✗ Not answered in time.", "✗ 未在时限内回答。")
_CANCELLED = Bilingual("✗ No longer needed.", "✗ 已取消，无需回答。")


def question_of(approval: Approval) -> AskArguments:
    return AskArguments.parse(json.loads(approval.request)["arguments"])


def may_answer(approval: Approval, message: MessageContext) -> bool:
    """Return True if the sender was asked: by name, or as anyone in the chat of the question."""
    origin, people = message_of(approval), approval.requester.split(", ")
    if message.sender.is_bot or not message.sender.id:
        return False
    anyone = question_of(approval).who == "anyone" or NOBODY in people
    return chat_of(message) == chat_of(origin) if anyone else person_of(message) in people


class Questions:
    """`tools.ask.Answers`, and the answers of people. `serve` connects it to its gateway."""

    def serve(self, runtime: Runtime, approvals: Approvals) -> None:
        self._runtime, self._approvals = runtime, approvals

    async def answer(self, call: Call) -> GivenAnswer:
        approval = await self._approvals.get(id_of(call.key.rpartition(":call")[2]))
        given = json.loads((approval and approval.decision) or "{}")
        if approval is None or approval.decided_turn is None or "chosen" not in given:
            raise ToolError("NO_ANSWER", "the answer was removed")
        typed, who = given["text"], approval.decided_by or ""
        names = await called(self._runtime, [who])
        return GivenAnswer(
            chosen=tuple(given["chosen"]),
            text=harmless(typed),
            by=harmless(name_of(names.get(who)) or who),
            source=turn_source(approval.decided_turn),
            external=bool(typed) and approval.decided_by not in approval.requester.split(", "),
        )

    async def typed(self, session: str, turn: int, messages: Sequence[MessageContext]) -> bool:
        """Take messages of one person as the answer to the question that is open in their conversation. Return False if
        they do not answer it. Idempotent. Raises StoreUnavailable."""
        message, text = messages[-1], "\n".join(it.text for it in messages).strip()
        approval = await self._runtime.store.approvals.question_in(session, turn)
        if approval is None or not may_answer(approval, message) or any(it.attachments or it.mark for it in messages):
            return False
        asked = question_of(approval)
        picked = asked.chosen(text)
        if not picked and not (asked.free and text):
            return False
        return await self._decide(approval, message, turn, picked, "" if picked else text)

    async def pressed(self, token: str, message: MessageContext, turn: int) -> tuple[Approval | None, bool]:
        """Take a press under a question; return the question, None if it is not the sender's to answer, and whether the
        press counted. Idempotent."""
        id_, _, act = token.removeprefix(TOKEN).rpartition(":")
        approval, press = await self._approvals.get(id_), message.press
        if approval is None or press is None or approval.tool != "ask" or not may_answer(approval, message):
            return None, False
        asked = question_of(approval)
        number = int(act) if act.isdecimal() and 0 < int(act) <= len(asked.options) else 0
        if number and asked.many:
            return await self._tick(approval, turn, number)
        if number:
            picked: tuple[int, ...] = (number,)
        else:
            form = tuple(it for it in press.picked if it <= len(asked.options)) if asked.many else ()
            picked = form or ticked(approval)
        typed = press.typed.strip()[:FORM_TEXT_CHARS_MAX] if asked.free else ""
        if not picked and not typed:
            return approval, approval.decided_turn == turn
        return approval, await self._decide(approval, message, turn, picked, typed)

    async def _tick(self, approval: Approval, turn: int, number: int) -> tuple[Approval | None, bool]:
        updated = await self._runtime.store.approvals.tick(approval.id, turn, number)
        return updated, updated is not None and updated.state == "pending"

    async def _decide(
        self, approval: Approval, message: MessageContext, turn: int, picked: Collection[int], typed: str
    ) -> bool:
        options = question_of(approval).options
        chosen = [option for number, option in enumerate(options, 1) if number in picked]
        decision = json.dumps({"chosen": chosen, "text": typed}, ensure_ascii=False)
        decider = Decider(person=person_of(message), surface=chat_of(message), turn=turn)
        won, _ = await self._approvals.decide(approval, decision, decider)
        return won


def ticked(approval: Approval) -> tuple[int, ...]:
    """Return the positions that an odd number of presses ticked."""
    presses = json.loads(approval.decision or "{}") if approval.state == "pending" else {}
    numbers = list(presses.values())
    return tuple(sorted({it for it in numbers if numbers.count(it) % 2}))


def shown(approval: Approval, language: Language, *, buttons: bool, forms: bool) -> Reply:
    """Show the question as it is asked, with the options ticked so far."""
    asked, id_ = question_of(approval), approval.id
    lines = [asked.question.strip(), "", *_listed(asked.options)]
    hints = []
    if asked.many:
        hints.append(_SEVERAL if buttons and not forms else _TYPE_SEVERAL)
    if asked.free:
        hints.append(_FREE)
    if not buttons:
        hints.append(_TYPED)
    if hints:
        lines += ["", ("" if language == "zh" else " ").join(it(language) for it in hints)]
    text = "\n".join(lines)
    if not buttons:
        return Reply(text=text)
    if forms and (asked.many or asked.free):
        form = ChoiceForm(
            token=f"{TOKEN}{id_}:{DONE}",
            submit=_SUBMIT(language),
            options=tuple(asked.options) if asked.many else (),
            field=_FIELD(language) if asked.free else "",
        )
        return Reply(text=text, buttons=() if asked.many else _choices(approval, asked), form=form)
    done = (Button(label=_DONE(language), token=f"{TOKEN}{id_}:{DONE}", style="primary"),) if asked.many else ()
    return Reply(text=text, buttons=(*_choices(approval, asked), *done))


def _listed(options: Sequence[str]) -> list[str]:
    return [f"{number}. {plain(' '.join(option.split()))}" for number, option in enumerate(options, 1)]


def _choices(approval: Approval, asked: AskArguments) -> tuple[Button, ...]:
    on = ticked(approval)
    return tuple(
        Button(label=f"☑ {option}" if number in on else option, token=f"{TOKEN}{approval.id}:{number}")
        for number, option in enumerate(asked.options, 1)
    )


def outcome(approval: Approval, language: Language, called: str | None, *, reader: str = "") -> str:
    """Describe the question and its outcome, to replace its message."""
    asked = question_of(approval)
    match approval.state:
        case "expired" | "undeliverable":
            line = _LATE(language)
        case "cancelled":
            line = _CANCELLED(language)
        case _:
            given = json.loads(approval.decision or "{}")
            who = person(approval.decided_by or "", called, language, reader=reader)
            who = who[:1].upper() + who[1:] if language == "en" else who
            words = [plain(" ".join(it.split())) for it in (*given.get("chosen", ()), given.get("text", "")) if it]
            line = f"✓ {who}{'：' if language == 'zh' else ': '}{('、' if language == 'zh' else ', ').join(words)}"
    return f"{asked.question.strip()}\n\n{line}"
