"""The agent runner: one message and its history in, one outcome out.

It builds the system prompt and the toolbox, runs the tool loop against the agent's model and its fallbacks, and keeps
the turn inside its time. It knows neither database nor channel API: what must last goes to the journal, what is to be
said is the outcome.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from agents.config import AgentConfig
from agents.events import Emit, ModelAsked, ModelStreamed, TurnStarted
from agents.history import fitting, plain, tokens
from agents.loop import Journal, LoopLimits, ToolLoop
from agents.messages import AssistantMessage, Message, Text, UserMessage
from agents.outcome import LimitReached, Outcome
from agents.prompt.facts import PromptFacts
from agents.prompt.inbound import body, metadata_blocks
from agents.prompt.system import build_system
from agents.prompt.workspace_files import WorkspaceFiles
from agents.providers.models import ModelLimits, family_of, limits_of
from agents.providers.provider import ModelRequest, OneTool, Provider, System, ToolChoice
from agents.providers.retry import complete
from agents.repair import repair
from agents.truncate import result_limit_chars
from agents.turn import Turn
from channels.message import MessageContext
from skills.catalog import Skill, SkillCatalog, visible
from tools.config import ExecConfig
from tools.tool import Messenger
from tools.toolbox import Toolbox, build_toolbox
from tools.workspace import Workspace

GATEWAY_NAME = "Clawgate"
MAX_TOKENS_DEFAULT = 16_384
PROMPTS_KEPT = 256
DOCS_DIR = Path(__file__).resolve().parent.parent / "docs"

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class RunnerLimits:
    rounds: int
    tool_calls: int
    turn_seconds: float
    identical_failures: int
    message_chars: int
    tool_argument_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """One model of the agent's list."""

    provider: Provider
    name: str
    limits: ModelLimits


class AgentRunner:
    """One agent, for every chat it answers."""

    def __init__(
        self,
        config: AgentConfig,
        *,
        providers: Mapping[str, Provider],
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
        self._models = [_model(name, config, providers) for name in config.model]

    def user_message(self, *contexts: MessageContext) -> UserMessage:
        """What the model is told of messages that are answered together, oldest first: the metadata blocks apart, the
        bodies as they stay in history."""
        content = tuple(Text(text=body(context, self._limits.message_chars)) for context in contexts)
        return UserMessage(content=content, metadata=metadata_blocks(*contexts), timestamp=self._now())

    async def run(self, turn: Turn, *, journal: Journal, emit: Emit) -> Outcome:
        """Answer the message, or say which way it failed. Raises only what the journal raises."""
        toolbox, system = await asyncio.to_thread(self._prepare, turn)
        emit(TurnStarted(agent=self._config.id, turn=turn, system=system))
        asking = _Asking(self._models, self._config, turn, system, toolbox, self._limits, emit)
        context = turn.context
        loop = ToolLoop(
            turn=f"{context.channel}:{context.account}:{context.message_id}",
            context=context,
            ask=asking.ask,
            toolbox=toolbox,
            journal=journal,
            limits=LoopLimits(
                rounds=self._limits.rounds,
                tool_calls=self._limits.tool_calls,
                identical_failures=self._limits.identical_failures,
                result_chars=min(result_limit_chars(model.limits.window) for model in self._models),
            ),
            emit=emit,
            now=self._now,
        )
        try:
            async with asyncio.timeout(self._limits.turn_seconds):
                return await loop.run([turn.user, *turn.so_far], interrupted=turn.interrupted)
        except TimeoutError:
            return LimitReached(limit="turn-time")

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
        )


class _Asking:
    """`agents.loop.Ask` for one turn: history that fits, repaired for each model, retries and fallbacks behind it."""

    def __init__(
        self,
        models: Sequence[Model],
        config: AgentConfig,
        turn: Turn,
        system: System,
        toolbox: Toolbox,
        limits: RunnerLimits,
        emit: Emit,
    ) -> None:
        self._models = models
        self._config = config
        kept = turn.history[max(0, len(turn.history) - config.history_turns) :]
        self._history = [plain(messages) for messages in kept]
        self._system = system
        self._toolbox = toolbox
        self._emit = emit
        self._deadline = time.monotonic() + limits.turn_seconds
        self._shrunk = False

    async def ask(self, messages: Sequence[Message], number: int) -> AssistantMessage:
        """The model's answer. Where the conversation is too large for it, once more with half of the past."""
        answer = await self._ask(messages, number)
        if answer.error is not None and answer.error.kind == "too_large" and self._history and not self._shrunk:
            self._shrunk = True
            log.warning("history_shrunk", turns=len(self._history))
            self._history = self._history[(len(self._history) + 1) // 2 :]
            answer = await self._ask(messages, number)
        return answer

    async def _ask(self, messages: Sequence[Message], number: int) -> AssistantMessage:
        (provider, request), *others = [
            (model.provider, self._request(model, messages, number)) for model in self._models
        ]
        self._emit(ModelAsked(round=number, provider=provider.name, request=request))
        return await complete(
            provider,
            request,
            deadline=self._deadline,
            fallbacks=others,
            emit=lambda event: self._emit(ModelStreamed(round=number, event=event)),
        )

    def _request(self, model: Model, messages: Sequence[Message], number: int) -> ModelRequest:
        answer_tokens = min(self._config.max_tokens or MAX_TOKENS_DEFAULT, model.limits.max_output)
        window = model.limits.window - answer_tokens
        running = sum(tokens(message) for message in messages)
        past = fitting(self._history, int(window * 0.9) - running)
        repaired = repair([*past, *messages], api=model.provider.api, family=family_of(model.name))
        return ModelRequest(
            model=model.name,
            system=self._system,
            messages=tuple(repaired),
            tools=self._toolbox.specs,
            tool_choice=self._tool_choice(number),
            max_tokens=answer_tokens,
        )

    def _tool_choice(self, number: int) -> ToolChoice:
        """What the agent's config demands holds for the first round; then the model must be free to answer."""
        wanted = self._config.tool_choice
        if wanted in ("auto", "none"):
            return "none" if wanted == "none" else "auto"
        if number > 1 or not self._toolbox.specs:
            return "auto"
        return "required" if wanted == "required" else OneTool(name=wanted)


def _model(name: str, config: AgentConfig, providers: Mapping[str, Provider]) -> Model:
    provider, _, model = name.partition("/")
    limits = limits_of(model)
    if config.context_window is not None:
        limits = replace(limits, window=config.context_window)
    if not limits.known:
        log.warning("model_unknown", model=model, window=limits.window, hint="set contextWindow and maxTokens")
    return Model(provider=providers[provider], name=model, limits=limits)
