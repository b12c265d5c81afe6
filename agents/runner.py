"""The agent runner: one message and its history in, one outcome out.

It builds the system prompt and the toolbox, runs the tool loop against the agent's model and its fallbacks, and keeps
the turn inside its time. It knows neither database nor channel API: what must last goes to the journal, what is to be
said is the outcome.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from agents.asking import Asking, Spent
from agents.attachments import Missing, Received, attachment, receive
from agents.config import AgentConfig
from agents.events import Emit, TurnStarted
from agents.loop import Journal, LoopLimits, ToolLoop
from agents.messages import AssistantMessage, Message, Text, UserMessage, UserPart
from agents.model import Models
from agents.outcome import LimitReached, Outcome
from agents.prompt.facts import PromptFacts
from agents.prompt.inbound import body, metadata_blocks
from agents.prompt.system import build_system
from agents.prompt.workspace_files import WorkspaceFiles
from agents.providers.provider import System
from agents.truncate import result_limit_chars
from agents.turn import Turn
from channels.message import File, MessageContext
from skills.catalog import Skill, SkillCatalog, visible
from tools.catalog import NAMES
from tools.config import ExecConfig
from tools.policy import allowed
from tools.tool import Messenger, ToolError
from tools.toolbox import Toolbox, build_toolbox
from tools.workspace import Workspace

GATEWAY_NAME = "Clawgate"
PROMPTS_KEPT = 256
DOCS_DIR = Path(__file__).resolve().parent.parent / "docs"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunnerLimits:
    rounds: int
    continuations: int
    tool_calls: int
    turn_seconds: float
    identical_failures: int
    message_chars: int
    tool_argument_bytes: int


class AgentRunner:
    """One agent, for every chat it answers."""

    def __init__(
        self,
        config: AgentConfig,
        *,
        models: Models,
        catalog: SkillCatalog,
        exec_config: ExecConfig,
        messenger: Messenger,
        limits: RunnerLimits,
        now: Callable[[], float],
    ) -> None:
        self._config = config
        self._catalog = catalog
        self._exec_config = exec_config
        self._exec_slots = asyncio.Semaphore(exec_config.parallel)
        self._messenger = messenger
        self._limits = limits
        self._now = now
        self._workspace = Workspace(root=Path(config.workspace_dir))
        self._files = WorkspaceFiles(self._workspace.root)
        self._told: dict[str, tuple[PromptFacts, System]] = {}
        """The last facts of a session and their prompt: mostly the next turn's as well."""
        self._shared = models
        self._models = [models.get(reference) for reference in config.model]
        windows = [config.context_window or model.facts.window for model in self._models]
        self._result_chars = min(map(result_limit_chars, windows))
        self._reads_files = any(name in ("read", "exec") for name in allowed(config.tools, NAMES))

    def user_message(self, *contexts: MessageContext, received: Sequence[Received] = ()) -> UserMessage:
        """What the model is told of messages that are answered together, oldest first: the metadata blocks apart, the
        bodies as they stay in history. `received`: what came with each of them, where anything did."""
        content: list[UserPart] = []
        for context, came in zip_longest(contexts, received, fillvalue=None):
            if context is not None:
                came = came or Received()
                content += [Text(text=body(context, self._limits.message_chars, came.note)), *came.pictures]
        return UserMessage(content=tuple(content), metadata=metadata_blocks(*contexts), timestamp=self._now())

    def receive(self, context: MessageContext, files: Sequence[File], missing: Sequence[Missing]) -> Received:
        """Take in the files that came with a message. Blocking."""
        return receive(self._workspace, context.message_id, files, missing, keeps=self._reads_files)

    def attachment(self, path: str, *, bytes_max: int) -> File:
        """A file of the workspace that the agent wants to send. Raises ToolError. Blocking."""
        if not self._reads_files:
            raise ToolError("NOT_ALLOWED", "this agent has no tool that reads files")
        return attachment(self._workspace, path, bytes_max=bytes_max)

    async def run(self, turn: Turn, *, journal: Journal, emit: Emit) -> tuple[Outcome, tuple[Spent, ...]]:
        """Answer the message, or say which way it failed; with every request that it took. Raises only what the journal
        raises."""
        toolbox, system = await asyncio.to_thread(self._prepare, turn)
        emit(TurnStarted(agent=self._config.id, turn=turn, system=system))
        asking = Asking(
            self._models,
            self._shared,
            self._config,
            session=turn.session,
            history=turn.history,
            system=system,
            tools=toolbox.specs,
            turn_seconds=self._limits.turn_seconds,
            emit=emit,
        )
        context = turn.context
        loop = ToolLoop(
            turn=f"{context.channel}:{context.account}:{context.chat.id}:{context.message_id}",
            context=context,
            ask=asking.ask,
            toolbox=toolbox,
            journal=journal,
            limits=LoopLimits(
                rounds=self._limits.rounds,
                continuations=self._limits.continuations,
                tool_calls=self._limits.tool_calls,
                identical_failures=self._limits.identical_failures,
                result_chars=self._result_chars,
            ),
            emit=emit,
            now=self._now,
        )
        try:
            async with asyncio.timeout(self._limits.turn_seconds):
                outcome = await loop.run([turn.user, *turn.so_far], interrupted=turn.interrupted)
        except TimeoutError:
            outcome = LimitReached(limit="turn-time")
        return outcome, (*_spent(turn.so_far), *asking.spent)

    def close(self) -> None:
        self._workspace.close()

    def _prepare(self, turn: Turn) -> tuple[Toolbox, System]:
        """What the turn may use and what it is told, as the folders are now. Blocking."""
        skills = visible(self._catalog.scan(self._workspace.root), self._config.skills)
        toolbox = self._toolbox(skills)
        facts = self._facts(turn, toolbox, skills)
        known = self._told.get(turn.session)
        if known is None or known[0] != facts:
            if len(self._told) >= PROMPTS_KEPT:
                self._told.clear()
            known = self._told[turn.session] = facts, build_system(facts)
        return toolbox, known[1]

    def _toolbox(self, skills: Sequence[Skill]) -> Toolbox:
        return build_toolbox(
            config=self._config.tools,
            exec_config=self._exec_config,
            exec_slots=self._exec_slots,
            # The workspace's own skills are read beneath its descriptor; only the others need a mount.
            workspace=self._workspace.mounting(
                {f"skills/{skill.name}": skill.directory for skill in skills if skill.source == "shared"}
            ),
            messenger=self._messenger,
            argument_bytes_max=self._limits.tool_argument_bytes,
            result_chars=self._result_chars,
        )

    def _facts(self, turn: Turn, toolbox: Toolbox, skills: Sequence[Skill]) -> PromptFacts:
        config = self._config
        return PromptFacts(
            gateway=GATEWAY_NAME,
            agent_id=config.id,
            agent_name=config.name or config.id,
            system_prompt=config.system_prompt,
            tools=toolbox.specs,
            skills=tuple(skills),
            workspace=str(self._workspace.root),
            docs=str(DOCS_DIR) if DOCS_DIR.is_dir() else None,
            workspace_files=self._files.read(turn.context.chat.kind),
            channel=turn.surface.channel,
            capabilities=turn.surface.capabilities,
            directives=turn.surface.directives,
            chat_kind=turn.context.chat.kind,
            session=turn.session,
            exec_mode=self._exec_config.mode,
            thinking=config.thinking or "off",
            tool_choice=config.tool_choice,
        )


def _spent(so_far: Sequence[Message]) -> list[Spent]:
    """What an earlier run of this turn has journaled."""
    return [
        Spent(model=f"{message.provider}/{message.model}", usage=message.usage, cost=message.cost)
        for message in so_far
        if isinstance(message, AssistantMessage)
    ]
