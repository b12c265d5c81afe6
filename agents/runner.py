"""The agent runner: one message and its history in, one outcome out.

It builds the system prompt and the toolbox, runs the tool loop against the agent's model and its fallbacks, and enforces the
turn's time limit. It uses neither database nor channel API: durable steps go to the journal, and the reply is the outcome.
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import TypeAlias

from agents.acp.agent import AcpAgents, AcpRun
from agents.attachments import Received, Receiver
from agents.compaction import INPUT_SHARE, Compacted, Compactor, Save
from agents.completion import ModelCalls
from agents.config import AgentConfig
from agents.context import result_limit_chars
from agents.language import Language
from agents.loop import ToolLoop
from agents.messages import AssistantMessage, External, Message, Text, UserMessage, UserPart
from agents.model import Model, Models, conversation_of
from agents.prompt.inbound import Heard, body, metadata_blocks
from agents.prompt.system import Commands, LastingFacts, PromptFacts, build_system
from agents.turn import Budget, Emit, Journal, LimitReached, Settings, Turn, TurnLimits, TurnResult, TurnStarted
from agents.workspaces import Workspaces, is_template, read_workspace_files
from channels.message import File, MessageContext
from channels.section import ToolLists, ToolNames
from skills.catalog import SkillCatalog, visible
from tools.attachment import attachment, web_file
from tools.catalog import Catalog, Toolbox, ToolPorts, offered, own_tools
from tools.command import is_absent
from tools.config import EXTERNAL_TOOLS, ToolsConfig, effective_approval, effective_exec, effective_files
from tools.documents.document import Documents
from tools.mcp.server import McpServers
from tools.memory import Note
from tools.paths import MEMORY
from tools.policy import SERVERS, holds, layers_of, may_ask, permitted, server_of
from tools.tool import Gate, Tool, ToolError
from tools.web.fetch import Fetcher

DOCS = "docs"
"""The folder where an agent reads the documentation, unless its workspace has such a folder."""
DOCS_DIR = next((it for it in Path(__file__).resolve().parent.glob(DOCS)), Path(__file__).resolve().parents[1] / DOCS)
"""The folder in the installed package, or next to the packages of a checkout."""
StandIn: TypeAlias = Callable[[Sequence[Tool]], Sequence[Tool]]
"""Return replacements for the turn's tools."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnPlan:
    """The inputs of a conversation's next request, except its messages."""

    model: Model
    window: int
    facts: PromptFacts


@dataclass
class AgentRunner:
    """One agent, for all its chats. `choosable` are the models that a user may choose; `scrub` removes secrets from
    tool output; times are in `zone`. `commands` returns those that would do something in a message's chat."""

    config: AgentConfig
    models: Models
    catalog: SkillCatalog
    tools_config: ToolsConfig
    ports: ToolPorts
    language: Language
    limits: TurnLimits
    now: Callable[[], float]
    zone: tzinfo
    commands: Callable[[MessageContext, LastingFacts], Commands]
    choosable: Sequence[str] = ()
    servers: McpServers | None = None
    scrub: Callable[[str], str] = str
    acp: AcpAgents | None = None
    """Runs an agent with `runner.acp`."""

    def __post_init__(self) -> None:
        config, tools_config = self.config, self.tools_config
        self.exec_config = effective_exec(tools_config.exec, config.tools)
        self.approval: tuple[ToolNames, ToolNames] = effective_approval(tools_config, config.tools)
        """The tools that always need an approval, and those that need one after external content."""
        files_config = effective_files(tools_config.files, config.tools)
        self._workspaces = Workspaces(config.workspace_dir, files_config, language=self.language)
        self._memory_is_own = is_template(config.workspace_dir)
        self._models = [self.models.get(reference) for reference in config.model]
        self._compactor = Compactor(config=config.compaction, models=self.models)
        self._result_chars = min(result_limit_chars(self._window(model)) for model in self._models)
        self._layers = layers_of(tools_config, config.tools)
        self._own = own_tools(tools_config)
        absent = {"handover": self.ports.handovers is None, "group_history": self.ports.groups is None}
        self.names = offered(tools_config, config.tools, off=[name for name, is_off in absent.items() if is_off])
        """The built-in and folder tools, before chats and senders remove any."""
        self.documents = Documents(self.limits.document_seconds)
        self._built_in = Catalog(
            self.names,
            config.tools,
            exec_config=self.exec_config,
            web=tools_config.web,
            feishu=tools_config.feishu,
            ports=self.ports,
            documents=self.documents,
            result_chars=self._result_chars,
        )
        self._has_docs = DOCS_DIR.is_dir()
        self.files = SessionFiles(
            workspaces=self._workspaces,
            fetcher=self._built_in.fetcher,
            names=self.names,
            layers=self._layers,
            approved=self.approval[0],
            native=any(model.facts.documents == "native" for model in self._models),
        )

    def user_message(
        self,
        *contexts: MessageContext,
        received: Sequence[Received],
        notes: Sequence[Note] = (),
        heard: Heard | None = None,
    ) -> UserMessage:
        """Build one user message for `contexts`, oldest first. The metadata blocks are separate; the bodies stay in
        history. `received`: the files of each; `notes`: the sender's notes; `heard`: earlier messages of the chat."""
        content: list[UserPart] = []
        for context, files in zip(contexts, received, strict=True):
            text = body(context, self.limits.message_chars, files.note, files.spoken)
            content += [Text(text=text), *files.shown]
        is_foreign = any(it.reply_to is not None and it.reply_to.foreign for it in contexts)
        external: External = "metadata" if (heard and heard.messages) or is_foreign else ""
        quotes = [(it.reply_to, files) for it, files in zip(contexts, received, strict=True)]
        return UserMessage(
            content=tuple(content),
            quoted=tuple(quote.message_id for quote, files in quotes if quote and files.has_quoted),
            metadata=metadata_blocks(*contexts, zone=self.zone, notes=notes, heard=heard),
            external="content" if any(it.is_foreign for it in contexts) else external,
            timestamp=self.now(),
        )

    async def run(
        self,
        turn: Turn,
        *,
        journal: Journal,
        emit: Emit,
        budget: Budget | None = None,
        save: Save | None = None,
        gate: Gate | None = None,
        stand_in: StandIn | None = None,
    ) -> TurnResult:
        """Answer the message, or return how it failed. Raises only what the journal and the budget raise. `save`
        stores a note for the sender. `stand_in` replaces the tools that run, but not those that the model is shown."""
        if self.config.runner.acp and self.acp is not None and stand_in is None:
            return await self.acp.run(self._acp_run(turn, journal, emit, budget, gate))
        config, models = self._chosen(turn.settings)
        toolbox, facts = self._prepare(turn, config, gate, stand_in)
        config = facts.agent
        system = build_system(facts)
        emit(TurnStarted(agent=self.config.id, turn=turn, system=system))
        model_calls = ModelCalls(
            models=models,
            shared=self.models,
            config=config,
            turn=turn,
            compactor=self._compactor,
            summarised=journal.summarised,
            save=save,
            system=system,
            tools=toolbox.specs,
            result_chars=self._result_chars,
            turn_seconds=self.limits.turn_seconds,
            emit=emit,
            answers=budget.answers if budget else [*(turn.summarised or ())],
        )
        loop = ToolLoop(
            turn=turn.key,
            context=turn.context,
            session=turn.session,
            several=turn.several,
            tainted=turn.tainted or model_calls.holds_external,
            complete=model_calls.complete,
            toolbox=toolbox,
            journal=journal,
            budget=budget,
            limits=self.limits,
            result_chars=min(self._result_chars, *(result_limit_chars(self._window(it)) for it in models)),
            emit=emit,
            now=self.now,
        )
        try:
            async with asyncio.timeout(self.limits.turn_seconds):
                outcome = await loop.run([turn.user, *turn.so_far], interrupted=turn.interrupted)
        except TimeoutError:
            outcome = LimitReached(limit="turn-time")
        earlier = (it for it in turn.so_far if isinstance(it, AssistantMessage) and it.provider)
        answers = (*earlier, *model_calls.answers)
        compaction = model_calls.compaction
        return TurnResult(outcome=outcome, answers=answers, compaction=compaction, tainted=loop.tainted)

    def _acp_run(self, turn: Turn, journal: Journal, emit: Emit, budget: Budget | None, gate: Gate | None) -> AcpRun:
        return AcpRun(
            config=self.config,
            workspace=self._workspaces.of(turn.context, turn.files_of or turn.session, sees_private=turn.sees_private),
            turn=turn,
            journal=journal,
            emit=emit,
            limits=self.limits,
            mode=self.exec_config.mode,
            names=permitted((*self._layers, *turn.layers), self.names),
            now=self.now,
            budget=budget,
            gate=gate,
        )

    async def compact(
        self,
        history: Sequence[Sequence[Message]],
        *,
        session: str,
        summary: str,
        focus: str,
        save: Save | None,
    ) -> Compacted | None:
        """Summarise on request; the caller journals it. Return None if nothing is old enough. The result has no turns
        if no summary was good enough."""
        model = self._models[0]
        input_tokens = self.models.calibration.room(model.name, int(self._window(model) * INPUT_SHARE))
        return await self._compactor.compact(
            history,
            own_models=self._models,
            input_tokens=input_tokens,
            conversation=conversation_of(session),
            summary=summary,
            keep_tokens=input_tokens / 4,
            deadline=time.monotonic() + self.limits.turn_seconds,
            focus=focus,
            save=save,
        )

    @property
    def may_ask(self) -> bool:
        """True if a call of the agent may need an approval in some chat."""
        always, tainted = self.approval
        of_servers = any(server_of(it) or it.startswith(SERVERS) for it in self.config.tools.allow or ())
        reads_external = of_servers or not EXTERNAL_TOOLS.isdisjoint(self.names)
        listed = always + (tainted if reads_external else ())
        return may_ask(self.names, self.exec_config.mode, listed) or (of_servers and bool(listed))

    def plan(self, turn: Turn) -> TurnPlan:
        config, (model, *_) = self._chosen(turn.settings)
        return TurnPlan(model=model, window=self._window(model), facts=self._prepare(turn, config)[1])

    def close(self) -> None:
        self._workspaces.close()

    def _chosen(self, settings: Settings) -> tuple[AgentConfig, Sequence[Model]]:
        """The config and the models under a person's settings. A chosen model has no fallbacks: a person who asks for
        one is not answered by another. A model that the config no longer names is not used."""
        config, models = self.config, self._models
        if settings.thinking is not None:
            config = config.but(thinking=settings.thinking)
        if settings.model in self.choosable:
            models = [self.models.get(settings.model)]
        return config, models

    def _window(self, model: Model) -> int:
        return self.config.context_window or model.facts.window

    def _prepare(
        self, turn: Turn, config: AgentConfig, gate: Gate | None = None, stand_in: StandIn | None = None
    ) -> tuple[Toolbox, PromptFacts]:
        """Build the turn's tools and prompt inputs from the current folders. Takes milliseconds of small reads; a
        thread would double that."""
        whole = self._workspaces.of(turn.context, turn.files_of or turn.session, sees_private=turn.sees_private)
        names = permitted(turn.layers, self.names)
        skills = visible(self.catalog.scan(whole.root, partial(is_absent, whole.fd)), self.config.skills, names)
        # The workspace's own skills are read beneath its descriptor; only shared ones need a mount.
        mounts = {f"skills/{skill.name}": skill.directory for skill in skills if skill.source == "shared"}
        if self._has_docs and "read" in names and not os.path.lexists(whole.root / DOCS):
            mounts[DOCS] = DOCS_DIR
        memory = (MEMORY,) if turn.with_owner or self._memory_is_own else ()
        workspace = whole.serving(uploads=whole.uploads, mounts=mounts, writable=memory)
        abilities = {*turn.actions, *(turn.directives if self.files.reads(turn.layers) else ())}
        tools = [*self._built_in.tools(workspace, abilities, names, turn.groups), *self._own.tools]
        tools += self.servers.tools(self.config.tools) if self.servers else ()
        if stand_in is not None:
            tools = [*stand_in(tools)]
        layers = (*self._layers, *turn.layers)
        limit = self.limits.tool_argument_bytes
        toolbox = Toolbox(tools, layers=layers, argument_bytes_max=limit, scrub=self.scrub, gate=gate)
        if config.tool_choice not in ("auto", "none", "required", *(it.name for it in toolbox.specs)):
            config = config.but(tool_choice="auto")  # the policy removed that tool
        always, tainted = self.approval
        external = any(it.name in EXTERNAL_TOOLS or server_of(it.name) for it in toolbox.specs)
        facts = PromptFacts(
            agent=config,
            tools=toolbox.specs,
            skills=skills,
            workspace=str(whole.root),
            docs=f"./{DOCS}" if DOCS in mounts else None,
            workspace_files=tuple(read_workspace_files(whole)),
            channel=turn.context.channel,
            capabilities=turn.capabilities,
            directives=turn.directives,
            chat_kind=turn.context.chat.kind,
            session=turn.session,
            exec_mode=self.exec_config.mode,
            caller=turn.caller,
            approval=always + (tainted if external else ()),
            reasoning=turn.settings.reasoning,
            reports_ends=turn.reports_ends,
        )
        return toolbox, replace(facts, commands=self.commands(turn.context, facts))


READERS = ("read", "exec", "process")
"""Tools that can read a workspace file."""
Asks: TypeAlias = Callable[[str], bool]
"""Return whether a call of this tool needs an approval."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionFiles:
    """`names` are the agent's tools before `layers` and the turn's own layers; every call of those in `approved` needs
    an approval. `native`: a model of the agent reads documents directly."""

    workspaces: Workspaces
    fetcher: Fetcher
    names: tuple[str, ...]
    layers: tuple[ToolLists, ...]
    approved: ToolNames
    native: bool

    def reads(self, layers: tuple[ToolLists, ...] = ()) -> bool:
        """Return whether a turn with these additional `layers` has a tool that reads files."""
        return self._may(READERS, layers, partial(holds, self.approved))

    def receiver(self, context: MessageContext, session: str) -> Receiver:
        """Return the receiver that stores a message's files. Blocking."""
        workspace = self.workspaces.of(context, session)
        return Receiver(workspace=workspace, message_id=context.message_id, keeps=self.reads(), native=self.native)

    def attachment(self, path: str, turn: Turn, asks: Asks, *, bytes_max: int) -> File:
        """Read a file to send from the workspace or the session's files. Raises ToolError. Blocking."""
        if not self._may(READERS, turn.layers, asks):
            raise ToolError("NOT_ALLOWED", "this agent has no tool that reads files here")
        workspace = self.workspaces.of(turn.context, turn.files_of or turn.session, sees_private=turn.sees_private)
        return attachment(workspace, path, bytes_max=bytes_max)

    async def web_attachment(self, url: str, turn: Turn, asks: Asks, *, bytes_max: int) -> File:
        """Download a file to send. Raises ToolError. The URL may leak data to its server, so this needs the permission
        of `web_fetch` as well as that to send files."""
        if not self._may(("web_fetch",), turn.layers, asks) or not self._may(READERS, turn.layers, asks):
            raise ToolError("NOT_ALLOWED", "this agent attaches nothing from the web here")
        async with self.fetcher.slots:
            return await web_file(self.fetcher.client, url, bytes_max=bytes_max)

    def _may(self, tools: Sequence[str], layers: tuple[ToolLists, ...], asks: Asks) -> bool:
        """Return whether a turn with these additional `layers` has one of the tools without an approval."""
        left = permitted((*self.layers, *layers), self.names)
        return any(it in left and not asks(it) for it in tools)
