"""An agent on the official SDK of the Agent Client Protocol, for tests: it does what the prompt says, also what is hostile.

Run as a program. A prompt's last line is a command: `say TEXT`, `edit PATH TEXT`, `read PATH`, `write PATH TEXT`, `plan`,
`slow`, `die`, `hang`, `flood`, `lines`, `lie`, `garbage`, `recall`. Each session's prompts are kept in $HOME, so that it
can be loaded again.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

from acp import PROTOCOL_VERSION, run_agent
from acp.exceptions import RequestError
from acp.helpers import (
    plan_entry,
    start_tool_call,
    tool_diff_content,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
)
from acp.schema import (
    AgentCapabilities,
    Implementation,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PromptCapabilities,
    PromptResponse,
    SetSessionModeResponse,
    ToolCallUpdate,
    Usage,
)

OPTIONS = [
    PermissionOption(option_id="once", name="Allow", kind="allow_once"),
    PermissionOption(option_id="always", name="Always", kind="allow_always"),
    PermissionOption(option_id="no", name="Reject", kind="reject_once"),
]


class ScriptedAgent:
    def __init__(self) -> None:
        self._client: Any = None
        self._cancelled = asyncio.Event()
        self._cwd = Path()

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(
                load_session="--forgets" not in sys.argv, prompt_capabilities=PromptCapabilities(image=True)
            ),
            agent_info=Implementation(name="scripted", title="Scripted agent", version="1.2"),
        )

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        self._cwd = Path(cwd)
        if "--login" in sys.argv and not os.environ.get("AGENT_KEY"):
            raise RequestError.auth_required()
        session = f"s-{uuid4().hex}"
        self._memory(session).write_text("[]")
        return NewSessionResponse(session_id=session)

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> LoadSessionResponse:
        self._cwd = Path(cwd)
        if not self._memory(session_id).exists():
            raise RequestError.resource_not_found(session_id)
        await self._client.session_update(session_id=session_id, update=update_agent_message_text("an old answer"))
        return LoadSessionResponse()

    async def set_session_mode(self, mode_id: str, session_id: str, **_: Any) -> SetSessionModeResponse:
        if mode_id != "plan":
            raise RequestError.invalid_params({"details": f"no mode {mode_id}"})
        return SetSessionModeResponse()

    async def cancel(self, session_id: str, **_: Any) -> None:
        self._cancelled.set()

    def _memory(self, session: str) -> Path:
        return Path(os.environ["HOME"]) / f"{session}.json"

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        self._cancelled.clear()
        text = "".join(getattr(it, "text", "") for it in prompt)
        memory = self._memory(session_id)
        before: list[str] = json.loads(memory.read_text())
        memory.write_text(json.dumps([*before, text]))
        said: str = text
        if "Go on, and make this call again" in text:  # a decision: the call again, or not
            said = before[-1] if "has been approved" in text else "say Then not."
        command, _blank, rest = said.strip().splitlines()[-1].rpartition(": ")[2].partition(" ")
        self._session, self._before, self._prompt = session_id, before, text
        stop = await getattr(self, f"do_{command}", self.do_say)(rest)
        usage = Usage(total_tokens=12, input_tokens=10, output_tokens=2)
        return PromptResponse(stop_reason=stop or "end_turn", usage=usage)

    async def _tell(self, text: str) -> None:
        await self._client.session_update(session_id=self._session, update=update_agent_message_text(text))

    async def _update(self, update: Any) -> None:
        await self._client.session_update(session_id=self._session, update=update)

    async def do_say(self, text: str) -> None:
        for word in (text or "nothing").split(" "):
            await self._tell(f"{word} ")

    async def do_recall(self, _: str) -> None:
        known = [it for it in ("Be brief.", "The conversation so far", "You: hello") if it in self._prompt]
        await self._tell(f"{len(self._before)} before; told {known}; in {os.getcwd()}")

    async def do_plan(self, _: str) -> None:
        entries = [plan_entry("look", status="completed"), plan_entry("mend", status="in_progress")]
        await self._update(update_plan(entries))
        await self._update(update_agent_thought_text("a secret thought"))
        await self._tell("planned")

    async def do_edit(self, rest: str) -> str | None:
        path, _, text = rest.partition(" ")
        whole = self._cwd / path
        diff = tool_diff_content(str(whole), text, "")
        call = start_tool_call("edit-1", f"Edit {path}", kind="edit", status="pending", raw_input={"path": path})
        await self._update(call)
        asked = ToolCallUpdate(
            tool_call_id="edit-1", title=f"Edit {path}", kind="edit", raw_input={"path": path}, content=[diff]
        )
        answer = await self._client.request_permission(session_id=self._session, tool_call=asked, options=OPTIONS)
        if answer.outcome.outcome == "cancelled":
            await self._cancelled.wait()
            return "cancelled"
        if answer.outcome.option_id != "once":
            await self._update(update_tool_call("edit-1", status="failed"))
            await self._tell("It was rejected.")
            return None
        with whole.open("a") as file:  # an edit that runs twice is seen
            file.write(f"{text}\n")
        await self._update(update_tool_call("edit-1", status="completed"))
        await self._tell(f"Edited {path}.")
        return None

    async def do_read(self, path: str) -> None:
        try:
            answer = await self._client.read_text_file(session_id=self._session, path=path)
            await self._tell(f"It says {answer.content}")
        except RequestError as error:
            await self._tell(f"Not read: {error}")

    async def do_write(self, rest: str) -> None:
        path, _, text = rest.partition(" ")
        try:
            await self._client.write_text_file(session_id=self._session, path=path, content=text)
            await self._tell("Written.")
        except RequestError as error:
            await self._tell(f"Not written: {error}")

    async def do_slow(self, _: str) -> str | None:
        await self._tell("begun ")
        (self._cwd / "begun").touch()
        await self._cancelled.wait()
        (self._cwd / "cancelled").touch()
        return "cancelled"

    async def do_die(self, _: str) -> None:
        sys.stderr.write("out of luck\n")
        sys.stderr.flush()
        os._exit(3)

    async def do_hang(self, _: str) -> None:
        await asyncio.Event().wait()

    async def do_flood(self, _: str) -> None:
        for _i in range(300):
            await self._tell("x" * 1_000)

    async def do_lines(self, _: str) -> None:
        os.set_blocking(1, True)
        while True:
            os.write(1, b"x" * 65_536)

    async def do_garbage(self, _: str) -> None:
        sys.stdout.write('not json\n{"broken\n{"jsonrpc": "2.0", "method": "session/update", "params": {"x": 1}}\n')
        sys.stdout.flush()
        await self._tell("still here")

    async def do_lie(self, _: str) -> None:
        """Reports to another session, and asks for permission with no options and for another's session."""
        await self._client.session_update(session_id="s-other", update=update_agent_message_text("a lie"))
        asked = ToolCallUpdate(tool_call_id="x", title="Nothing", kind="execute")
        for session, options in (("s-other", OPTIONS), (self._session, [])):
            answer = await self._client.request_permission(session_id=session, tool_call=asked, options=options)
            await self._tell(f"{answer.outcome.outcome} ")


if __name__ == "__main__":
    agent: Any = ScriptedAgent()  # of the protocol's methods, those that a client calls here
    asyncio.run(run_agent(agent))
