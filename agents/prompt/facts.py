"""Everything the system prompt may depend on: config, tools, skills, workspace files, channel. No message is in here."""

from dataclasses import dataclass

from channels.message import ChatKind
from skills.catalog import Skill
from tools.config import ExecMode
from tools.tool import ToolSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptFacts:
    """What one turn's system prompt is made of. `tools` and `skills` are what is left after policy."""

    gateway: str
    agent_id: str
    agent_name: str
    system_prompt: str
    """The operator's own text, used word for word."""
    tools: tuple[ToolSpec, ...]
    skills: tuple[Skill, ...]
    workspace: str
    docs: str | None
    """Where the agent can read the gateway's documentation; None where it cannot."""
    workspace_files: tuple[tuple[str, str], ...]
    """Name and text, as `WorkspaceFiles.read` gives them."""
    channel: str
    capabilities: tuple[str, ...]
    directives: tuple[str, ...]
    """What the channel acts upon in an answer: `media`, `voice`, `reply`."""
    chat_kind: ChatKind
    session: str
    thinking: str = "off"
    tool_choice: str = "auto"
    """`auto`, `none`, `required` or a tool's name, as the operator set it."""
    control: bool = False
    """Whether a tool is allowed that looks at or changes the gateway itself."""
    exec_mode: ExecMode = "ask"
    """What the operator's policy does with a call of `exec`."""

    def has(self, *names: str) -> bool:
        """Whether any of these tools is allowed."""
        return any(tool.name in names for tool in self.tools)
