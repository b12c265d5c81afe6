"""The words that mean something between gateway and model: what builds a prompt and what defends it share this list.

Nothing here decides anything. A new section's heading is added here first, so that nobody can write it in a message.
"""

from tools.paths import INSTRUCTION_FILES

BOUNDARY = "<<<CACHE_BOUNDARY>>>"
"""Where the stable part of the system prompt ends. For people and programs that read it; no provider is sent it."""
SILENT = "__SILENT__"
"""An answer that is exactly this is not sent."""
MEMORY = "MEMORY.md"
"""The one workspace file in the prompt that an agent may always write: its notes, shown as data."""
INBOUND = "Inbound Context (trusted metadata)"
"""The heading over the one block of a user message that the gateway vouches for."""
TOOL_CALLS = "Tool Calls"
"""The heading over the tools of a model that reads of them in its prompt."""

HEADINGS = (
    "Tooling",
    "Tool Call Style",
    "Execution Bias",
    "Safety",
    "Gateway Control",
    "Agent Instructions",
    "Skills",
    "Workspace",
    "Documentation",
    "Workspace Files (injected)",
    "Assistant Output Directives",
    "Silent Replies",
    "Messaging",
    "Runtime",
    TOOL_CALLS,
)
"""The sections of the system prompt, in their order; the last stands there only where tools are offered by prompt."""

FILE_HEADINGS = (*INSTRUCTION_FILES, MEMORY)
"""The workspace files in the prompt, each under its name."""
