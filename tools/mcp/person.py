"""Calls of an MCP server with the token of the person whom a turn serves: Feishu's own documents server, and any other
whose `headers` or `env` have `${person:feishu}`.

A server's tools are listed without a person. Each call over HTTP has a connection for itself, so that no session is ever
shared between people. A program with the token in its environment runs once for each person, in a folder that is removed
with it, and a new token starts another one; it ends when idle. What the server refuses is explained as by the tool `feishu`.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import structlog

from tools.feishu.refusals import KNOWN, TOKEN_CODES, Acting, missing_scopes, refusal
from tools.identity import Identities, decider_of
from tools.mcp.config import SCOPES
from tools.mcp.definition import Definition, ServerGone
from tools.tool import Call, Subject, ToolError, ToolResult, ToolSpec, failed

if TYPE_CHECKING:
    from tools.mcp.client import McpSession
    from tools.mcp.server import McpServer

log = structlog.get_logger()

IDLE_SECONDS = 300.0
PROCESSES_MAX = 8
"""Processes of idle people that one server keeps; no more calls than this run at a time."""
_PROTOCOL = {-32011: TOKEN_CODES[0], -32003: TOKEN_CODES[1], -32030: 99991400}
"""Error codes of Feishu's documents server, and those of its open platform that mean the same."""
_CODE = re.compile(r"(?i)\bcode\W{1,4}(\d{4,9})\b")


@dataclass(frozen=True)
class PersonTool:
    server: "McpServer"
    definition: Definition
    spec: ToolSpec

    def parse(self, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.definition.parse(raw)

    async def prepare(self, arguments: Mapping[str, Any], call: Call) -> None:
        """Have the person log in before they are asked for an approval. Raises ToolError."""
        await self.server.person.token(self.definition.tool, call)

    def subject(self, arguments: Mapping[str, Any], call: Call) -> Subject | None:
        config, tool = self.server.config, self.definition.tool
        if not config.asks(tool) and not call.gated:
            return None
        shown = json.dumps(dict(arguments), ensure_ascii=False, sort_keys=True, indent=2)
        decider = decider_of(call) if config.asks(tool) and config.acts_as == "person" else ""
        return Subject(text=f"{self.server.name} {tool}\n\n{shown}", facts={"as": config.acts_as}, decider=decider)

    async def run(self, arguments: Mapping[str, Any], call: Call) -> ToolResult:
        return await self.server.call(self.definition, arguments, call)


class PersonCalls:
    """The calls of one server."""

    def __init__(self, server: "McpServer", identities: Identities) -> None:
        self._server, self._config, self._identities = server, server.config, identities
        self._acts = Acting(identities, server.config.account, is_person=server.config.acts_as == "person")
        self._processes: dict[tuple[str, str, str], _PersonProcess] = {}
        """Keys are people. The last used one is at the end."""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The server's address; that of Feishu's own follows from the account's. Raises ToolError."""
        return self._config.url or documents_address(self._identities.address(self._config.feishu))

    async def token(self, tool: str, call: Call, refused: str = "") -> str:
        """Return the token of the person, or of the app. Raises ToolError."""
        return await self._acts.token(call, SCOPES.get(tool, ()) if self._config.feishu else (), refused)

    async def call(self, tool: str, arguments: Mapping[str, Any], call: Call) -> ToolResult:
        """Call a tool. A token that Feishu refuses is refreshed once. Raises ToolError."""
        token = await self.token(tool, call)
        code, result = await self._answer(tool, arguments, call, token)
        if code in TOKEN_CODES:
            token = await self.token(tool, call, refused=token)
            code, result = await self._answer(tool, arguments, call, token)
        if not code:
            return result
        log.info("feishu_refused", server=self._server.name, tool=tool, code=code)
        said = _said(result)
        scopes = missing_scopes(said) or SCOPES.get(tool, ())
        raise await refusal(code, str(said["msg"]), scopes, acts=self._acts, call=call)

    async def close(self) -> None:
        tasks = [*self._tasks]
        for it in tasks:
            it.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, tool: str, arguments: Mapping[str, Any], call: Call, token: str) -> tuple[int, ToolResult]:
        """Call once; return Feishu's code for a refusal that has a meaning here, else 0, and the result."""
        try:
            async with self._connection(token, call) as connection:
                result = await self._server.within(connection, tool, arguments, call)
        except ToolError as error:
            if not self._config.feishu or "refused" not in error.details:
                raise
            result = failed(error)
        except ServerGone as error:
            words = "the server ended during the call; it may have done it, or not"
            raise ToolError("TOOL_UNAVAILABLE", words, retryable=self._config.effect_of(tool) == "safe") from error
        except Exception as error:  # a server's edge: the log has what it did
            log.warning("mcp_person_call_failed", server=self._server.name, exc_info=error)
            words = f"the server {self._server.name!r} cannot be reached ({type(error).__name__})"
            raise ToolError("TOOL_UNAVAILABLE", words, retryable=True) from error
        return (code_of(result) if self._config.feishu and result.is_error else 0), result

    @asynccontextmanager
    async def _connection(self, token: str, call: Call) -> AsyncIterator["McpSession"]:
        if not self._config.command:
            async with self._server.connected(token) as connection:
                yield connection
            return
        process = self._process(call, token)
        process.calls += 1
        try:
            yield await asyncio.shield(process.ready)
        except (ToolError, ServerGone):  # it hangs, or has ended
            process.is_over = True
            raise
        finally:
            process.calls -= 1
            process.left()

    def _process(self, call: Call, token: str) -> "_PersonProcess":
        """Return the process of the person with this token; one with an older token ends after its last call."""
        message = call.message
        key = message.channel, message.account, message.sender.id
        known = self._processes.pop(key, None)
        if known is not None and (known.token != token or known.is_over):
            known.is_over = True
            known.left()
            known = None
        idle = [it for it, process in self._processes.items() if not process.calls]
        if known is None and len(self._processes) >= PROCESSES_MAX and idle:
            oldest = self._processes.pop(idle[0])
            oldest.is_over = True
            oldest.left()
        if known is None:
            known = _PersonProcess(self._server, token)
            self._tasks.add(known.task)
            known.task.add_done_callback(self._tasks.discard)
        self._processes[key] = known
        return known


class _PersonProcess:
    """A program that runs with one token. `is_over`: it takes no more calls, and ends after the last one."""

    def __init__(self, server: "McpServer", token: str) -> None:
        self.token, self.calls, self.is_over = token, 0, False
        self._server, self._left = server, asyncio.Event()
        self.ready: asyncio.Future[McpSession] = asyncio.get_running_loop().create_future()
        self.ready.add_done_callback(lambda it: it.cancelled() or it.exception())  # nobody may wait for it any more
        self.task = asyncio.create_task(self._run())

    def left(self) -> None:
        """Note that a call has ended."""
        self._left.set()

    async def _run(self) -> None:
        try:
            async with self._server.connected(self.token) as connection:
                self.ready.set_result(connection)
                is_idle = False
                while not connection.ended.is_set() and (self.calls or not (self.is_over or is_idle)):
                    is_idle = await self._idled(connection)
        except Exception as error:  # noqa: BLE001 - a server's edge: who waits for it gets the error
            if not self.ready.done():
                self.ready.set_exception(error)
        finally:
            self.is_over = True
            self.ready.cancel()

    async def _idled(self, connection: "McpSession") -> bool:
        """Wait for the program's end, or the end of a call; return True if neither came in time."""
        self._left.clear()
        waits = [asyncio.ensure_future(it.wait()) for it in (connection.ended, self._left)]
        try:
            done, _ = await asyncio.wait(waits, timeout=IDLE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for it in waits:
                it.cancel()
        return not done


def documents_address(address: str) -> str:
    """Return the address of the documents server of an account's brand, such as https://mcp.feishu.cn/mcp."""
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=re.sub(r"^open\.", "mcp.", parts.netloc), path="/mcp"))


def code_of(result: ToolResult) -> int:
    """Return Feishu's code for an error that has a meaning here, whether the protocol or the tool reports it; else 0."""
    if "refused" in result.details:
        return _PROTOCOL.get(result.details["refused"], 0)
    said = _said(result)
    found = [said.get("code"), *map(int, _CODE.findall(str(said["msg"])))]
    return next((it for it in found if isinstance(it, int) and it in KNOWN), 0)


def _said(result: ToolResult) -> Mapping[str, Any]:
    """Return a failed tool's answer: its text, and the members of the JSON that it is."""
    text = "\n".join(it for it in result.content if isinstance(it, str))
    members = None
    with suppress(ValueError, RecursionError):
        members = json.loads(text)
    return {"msg": text, **members} if isinstance(members, dict) else {"msg": text}
