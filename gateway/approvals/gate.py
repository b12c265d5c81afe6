"""The gate for the tool calls of one turn: `tools.tool.Gate` on the store.

A call without permission becomes a request, its result says so, and the turn ends normally. The decision starts another
turn in the same conversation, whose first call is the approved one, taken from the stored request. It passes the gate
again: its digest must match the approved one, and it is marked as spawned before it runs. So the history never has an
unpaired call, no lane waits, and a crash is handled like that of any call.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo

from agents.messages import AssistantMessage, Text, ToolCall, UserMessage
from agents.prompt.fences import SILENT
from agents.prompt.inbound import metadata_blocks
from agents.runner import AgentRunner
from channels.marks import OWN_TURN
from channels.message import MessageContext
from gateway.approvals.approvals import Approvals
from gateway.approvals.display import reply_lines
from gateway.store.approvals import Approval
from tools.ask import NAME as QUESTION
from tools.paths import MEMORY
from tools.policy import holds
from tools.tool import Call, Request, ToolError, ToolResult, canonical, digest_of

_NOTES = {
    "approved": "has been approved by {by} and runs now",
    "denied": "has been denied by {by}",
    "expired": "was not decided in time",
    "cancelled": "is cancelled",
    "undeliverable": "could not be shown in full to anyone who may approve it",
}
_QUESTION_NOTES = {"approved": "has been answered; its result is the answer", "expired": "was not answered in time"}
_NO_ANSWERS = {
    "expired": "nobody answered in time; go on without the answer, or say what you need to know",
    "undeliverable": "the question could not be sent; say what you need to know in your answer",
}


def opening(
    approval: Approval, context: MessageContext, at: float, zone: tzinfo
) -> tuple[UserMessage, AssistantMessage]:
    """Return the start of a turn that continues with a decision: a note, and the call of the stored request."""
    notes = {**_NOTES, **(_QUESTION_NOTES if approval.tool == QUESTION else {})}
    what = notes.get(approval.state, "has been decided").format(by=approval.decided_by or "nobody")
    note = f"{OWN_TURN}, and of no person. The call of {approval.tool} that waited as {approval.id} {what}.)"
    text = f"[message_id: approval-{approval.id}]\n{note}"
    arguments = json.loads(approval.request)["arguments"]
    call = ToolCall(id=call_id(approval), name=approval.tool, arguments=arguments, arguments_raw=canonical(arguments))
    return (
        UserMessage(content=(Text(text=text),), metadata=metadata_blocks(context, zone=zone), timestamp=at),
        AssistantMessage(content=(call,), provider="", model="", api="", stop_reason="tool_use", timestamp=at),
    )


def call_id(approval: Approval) -> str:
    return "call" + approval.id.replace("-", "")


@dataclass(frozen=True, kw_only=True, slots=True)
class SpawnedCall:
    """The `Permit` of a call that has been marked as spawned."""

    approvals: Approvals
    id: str

    async def finished(self, result: ToolResult) -> None:
        code = result.details.get("exitCode")
        code = code if isinstance(code, int) else None
        await self.approvals.move(self.id, "spawned", "finished", exit_code=code)


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnGate:
    """The gate of one turn. `people` are all senders that the turn answers. `decided` is the decision it continues
    with, if any. `asker` is the agent that handed over the task: a call that needs an approval there needs one here."""

    approvals: Approvals
    runner: AgentRunner
    session: str
    turn: int
    people: Sequence[str]
    decided: Approval | None = None
    asker: AgentRunner | None = None

    def demands(self, tool: str, call: Call) -> bool:
        return self.asks(tool, tainted=call.tainted) or self._goes_on(call)

    def asks(self, tool: str, *, tainted: bool) -> bool:
        """Return whether a call of the tool needs an approval. `tainted`: the request has external content. A change
        of the memory files then needs one if any tool does, because memory is in each later prompt and nothing marks
        it as external."""
        for runner in (self.runner, self.asker or self.runner):
            always, after_external = runner.approval
            remembers = tool == MEMORY and bool(after_external)
            if holds(always, tool) or (tainted and (remembers or holds(after_external, tool))):
                return True
        return False

    async def admit(self, request: Request, call: Call) -> SpawnedCall:
        agent = self.runner.config.id
        bound = request.canonical(agent)
        if request.tool == QUESTION:
            return await self._question(request, bound, call)
        if self.decided is not None and self._goes_on(call):
            return await self._spawn(self.decided.id, digest_of(bound))
        if self.decided is not None and self.decided.state == "denied" and self.decided.digest == digest_of(bound):
            raise _denied(self.decided)
        admission, approval = await self.approvals.request(
            request,
            bound,
            agent=agent,
            session=self.session,
            turn=self.turn,
            origin=call.message,
            people=self.people,
            tainted=call.tainted,
        )
        if admission == "unreachable":
            message = (
                "this call needs an approval, and nobody who may give one can be reached; tell the user that an approver "
                "must write to this bot in a direct chat first, or be named in `approvals.approvers`"
            )
            raise ToolError("NO_APPROVER", message)
        if approval is None:
            message = "too many requests wait for a decision already; do something else, or wait for one of them"
            raise ToolError("APPROVAL_BACKLOG", message, retryable=True)
        if admission == "granted":
            return SpawnedCall(approvals=self.approvals, id=approval.id)
        if admission == "denied":
            raise _denied(approval)
        lines = "; ".join(f"`{line}`" for line in reply_lines(approval))
        message = (
            f"approval-pending: nothing has run yet. The gateway has asked for the approval {approval.id} and runs the call "
            "itself once it is allowed; its result then comes to you in this conversation. Do not call it again. "
            f"An approver answers with exactly one of these lines: {lines}. Never run them through a tool."
        )
        raise ToolError("EXEC_APPROVAL_PENDING", message, approval=approval.id)

    async def _question(self, request: Request, bound: str, call: Call) -> SpawnedCall:
        """Admit a question that was answered, however often; else ask it, which is a ToolError."""
        if self.decided is not None and self._goes_on(call):
            approval = await self.approvals.get(self.decided.id)
            state = approval.state if approval else "cancelled"
            if state in ("approved", "spawned", "interrupted", "finished"):
                await self.approvals.move(self.decided.id, "approved", "spawned")
                return SpawnedCall(approvals=self.approvals, id=self.decided.id)
            raise ToolError("NO_ANSWER", _NO_ANSWERS.get(state, "the question was cancelled"))
        approval = await self.approvals.question(
            request,
            bound,
            agent=self.runner.config.id,
            session=self.session,
            turn=self.turn,
            origin=call.message,
            people=self.people,
            tainted=call.tainted,
        )
        if approval is None:
            message = "another question is open in this conversation; end your turn and wait for its answer"
            raise ToolError("QUESTION_OPEN", message, retryable=True)
        message = (
            "the question is shown to the person with its options; end your turn now, and its answer comes to you in this "
            f"conversation as the result of this call. Do not repeat the question: answer {SILENT} alone"
        )
        raise ToolError("ASK_PENDING", message, approval=approval.id)

    def _goes_on(self, call: Call) -> bool:
        return self.decided is not None and call.key.endswith(":" + call_id(self.decided))

    async def _spawn(self, id_: str, digest: str) -> SpawnedCall:
        """Mark the approved call as spawned if it is unchanged. Raises ToolError."""
        approval = await self.approvals.get(id_)
        match approval.state if approval else "cancelled":
            case "approved" if approval is not None:
                if digest_of(approval.request) != approval.digest or digest != approval.digest:
                    await self.approvals.move(id_, "approved", "cancelled", decision="changed")
                    message = (
                        "what would run now is not what was approved: the folder, the program, a file of the call or a "
                        "setting has changed since; nothing ran. Call it again to ask for a new approval"
                    )
                    raise ToolError("EXEC_BINDING_MISMATCH", message, retryable=True)
                if await self.approvals.move(id_, "approved", "spawned"):
                    return SpawnedCall(approvals=self.approvals, id=id_)
                raise ToolError("INTERRUPTED", "it may have run already, elsewhere; it is not run again")
            case "denied" if approval is not None:
                raise _denied(approval)
            case "expired":
                message = "nobody decided in time, so nothing ran; ask the user before you try it again"
                raise ToolError("EXEC_APPROVAL_EXPIRED", message)
            case "undeliverable":
                message = (
                    "the request could not be sent whole to anybody who may approve it, so nothing ran; tell the user"
                )
                raise ToolError("NO_APPROVER", message)
            case "spawned" | "interrupted" | "finished":
                message = (
                    "it was run already, or a restart interrupted it: it may have run, and is not run again; check"
                )
                raise ToolError("INTERRUPTED", message)
            case _:
                raise ToolError("EXEC_DENIED", "the request was cancelled, so nothing ran")


def _denied(approval: Approval) -> ToolError:
    return ToolError("EXEC_DENIED", f"{approval.decided_by or 'an approver'} denied it; do not ask for the same again")
