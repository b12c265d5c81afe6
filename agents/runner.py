"""The agent runner: one message and its history in, one outcome out.

It builds the system prompt and the toolbox, runs the tool loop against the agent's model and its fallbacks, and keeps
the turn inside its time. It knows neither database nor channel API: what must last goes to the journal, the reply is
the outcome.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from itertools import chain
from pathlib import Path

from agents.attachments import Missing, Received, attachment, receive
from agents.compaction import INPUT_SHARE, Compacted, Compactor
from agents.completion import ModelCalls, conversation_of
from agents.config import AgentConfig
from agents.loop import Journal, ToolLoop
from agents.messages import AssistantMessage, Message, Text, UserMessage, UserPart
from agents.model import Models
from agents.prompt.inbound import body, metadata_blocks
from agents.prompt.system import PromptFacts, build_system
from agents.prompt.workspace_files import read_workspace_files
from agents.providers.provider import System
from agents.truncate import result_limit_chars
from agents.turn import Emit, LimitReached, Turn, TurnLimits, TurnResult, TurnStarted
from agents.workspaces import Workspaces
from channels.message import File, MessageContext
from skills.catalog import SkillCatalog, visible
from tools.catalog import Catalog, Toolbox, ToolSource
from tools.config import ExecConfig, FilesConfig
from tools.tool import Messenger, ToolError
from tools.workspace import Workspace, folder_of

DOCS_DIR = Path(__file__).resolve().parent.parent / "docs"
DOCS = "docs"
"""Where an agent reads them, unless its workspace has such a folder of its own."""


@dataclass
class AgentRunner:
    """One agent, for every chat it answers."""

    config: AgentConfig
    models: Models
    catalog: SkillCatalog
    exec_config: ExecConfig
    files_config: InitVar[FilesConfig]
    messenger: InitVar[Messenger]
    limits: TurnLimits
    now: Callable[[], float]

    def __post_init__(self, files_config: FilesConfig, messenger: Messenger) -> None:
        config, exec_config = self.config, self.exec_config
        self._workspaces = Workspaces(config.workspace_dir, writable=files_config.writable)
        self._uploads = Path(files_config.uploads_dir)
        self._models = [self.models.get(reference) for reference in config.model]
        self._compactor = Compactor(config=config.compaction, models=self.models)
        windows = [config.context_window or model.facts.window for model in self._models]
        self._result_chars = min(map(result_limit_chars, windows))
        built_in = Catalog(config.tools, exec_config=exec_config, messenger=messenger, result_chars=self._result_chars)
        self._sources: Sequence[ToolSource] = (built_in,)
        self._reads_files = "read" in built_in.names or "exec" in built_in.names
        self._shows_docs = "read" in built_in.names and DOCS_DIR.is_dir()

    def user_message(self, *contexts: MessageContext, received: Sequence[Received]) -> UserMessage:
        """The message that the model gets for `contexts`, which are answered together, oldest first: the metadata blocks
        apart, the bodies as they stay in history. `received`: the files of each."""
        content: list[UserPart] = []
        for context, files in zip(contexts, received, strict=True):
            content += [Text(text=body(context, self.limits.message_chars, files.note)), *files.pictures]
        return UserMessage(content=tuple(content), metadata=metadata_blocks(*contexts), timestamp=self.now())

    def receive(
        self, context: MessageContext, session: str, files: Sequence[File], missing: Sequence[Missing]
    ) -> Received:
        """Store a message's files. Blocking."""
        workspace = self._serving(self._workspaces.of(context), session)
        return receive(workspace, context.message_id, files, missing, keeps=self._reads_files)

    def attachment(self, path: str, context: MessageContext, session: str, *, bytes_max: int) -> File:
        """A file that the agent wants to send, of its workspace or the session's. Raises ToolError. Blocking."""
        if not self._reads_files:
            raise ToolError("NOT_ALLOWED", "this agent has no tool that reads files")
        return attachment(self._serving(self._workspaces.of(context), session), path, bytes_max=bytes_max)

    async def run(self, turn: Turn, *, journal: Journal, emit: Emit) -> TurnResult:
        """Answer the message, or say which way it failed. Raises only what the journal raises."""
        toolbox, system = self._prepare(turn)
        emit(TurnStarted(agent=self.config.id, turn=turn, system=system))
        model_calls = ModelCalls(
            models=self._models,
            shared=self.models,
            config=self.config,
            session=turn.session,
            history=turn.history,
            summary=turn.summary,
            compactor=self._compactor,
            summarised=journal.summarised,
            system=system,
            tools=toolbox.specs,
            result_chars=self._result_chars,
            turn_seconds=self.limits.turn_seconds,
            emit=emit,
        )
        context = turn.context
        loop = ToolLoop(
            turn=f"{context.channel}:{context.account}:{context.chat.id}:{context.message_id}",
            context=context,
            complete=model_calls.complete,
            toolbox=toolbox,
            journal=journal,
            limits=self.limits,
            result_chars=self._result_chars,
            emit=emit,
            now=self.now,
        )
        try:
            async with asyncio.timeout(self.limits.turn_seconds):
                outcome = await loop.run([turn.user, *turn.so_far], interrupted=turn.interrupted)
        except TimeoutError:
            outcome = LimitReached(limit="turn-time")
        earlier = (message for message in turn.so_far if isinstance(message, AssistantMessage))
        answers = (*earlier, *model_calls.answers)
        return TurnResult(outcome=outcome, answers=answers, compaction=model_calls.compaction)

    async def compact(
        self, history: Sequence[Sequence[Message]], *, session: str, summary: str, focus: str
    ) -> Compacted | None:
        """A summary because somebody wishes for it, who marks it. None where nothing is old enough, or no summary of it is
        good enough."""
        model = self._models[0]
        window = int((self.config.context_window or model.facts.window) * INPUT_SHARE)
        input_tokens = self.models.calibration.room(model.name, window)
        compacted = await self._compactor.compact(
            history,
            own_models=self._models,
            input_tokens=input_tokens,
            conversation=conversation_of(session),
            summary=summary,
            keep_tokens=input_tokens / 4,
            deadline=time.monotonic() + self.limits.turn_seconds,
            focus=focus,
        )
        return compacted if compacted and compacted.turns else None

    def close(self) -> None:
        self._workspaces.close()

    def _prepare(self, turn: Turn) -> tuple[Toolbox, System]:
        """The turn's tools and its system prompt, as the folders are now: some milliseconds of small reads, which a thread
        would make twice as long."""
        whole = self._workspaces.of(turn.context)
        skills = visible(self.catalog.scan(whole.root), self.config.skills)
        # The workspace's own skills are read beneath its descriptor; only the others need a mount.
        mounts = {f"skills/{skill.name}": skill.directory for skill in skills if skill.source == "shared"}
        if self._shows_docs and not os.path.lexists(whole.root / DOCS):
            mounts[DOCS] = DOCS_DIR
        workspace = self._serving(whole, turn.session, mounts)
        tools = chain.from_iterable(source.tools(workspace) for source in self._sources)
        toolbox = Toolbox(tools, argument_bytes_max=self.limits.tool_argument_bytes)
        facts = PromptFacts(
            agent=self.config,
            tools=toolbox.specs,
            skills=skills,
            workspace=str(whole.root),
            docs=f"./{DOCS}" if DOCS in mounts else None,
            workspace_files=read_workspace_files(whole.root, turn.context.chat.kind),
            channel=turn.context.channel,
            capabilities=turn.capabilities,
            directives=turn.directives,
            chat_kind=turn.context.chat.kind,
            session=turn.session,
            exec_mode=self.exec_config.mode,
        )
        return toolbox, build_system(facts)

    def _serving(self, workspace: Workspace, session: str, mounts: Mapping[str, Path] | None = None) -> Workspace:
        return workspace.serving(uploads=folder_of(self._uploads, session), mounts=mounts)
