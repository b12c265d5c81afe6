"""Our request as a body of Chat Completions, as one vendor takes it. Pure: nothing is sent, and the history is taken as
repaired.

What differs from vendor to vendor is asked of its record. Text is sent as a string, never as a list with one part:
servers of text-only models refuse lists. The messages themselves are built in `conversation`.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import structlog

from agents.messages import AssistantMessage
from agents.providers.chat.conversation import Object, conversation
from agents.providers.chat.schemas import parameters
from agents.providers.chat.thinking import may_think, thinking_members
from agents.providers.chat.vendor import Vendor
from agents.providers.chat.vendors import for_model
from agents.providers.choice import settled
from agents.providers.provider import ModelRequest, OneTool
from agents.providers.wellformed import well_formed
from agents.providers.wire_ids import wire_name
from tools.tool import ToolSpec

Body: TypeAlias = dict[str, Any]

log = structlog.get_logger()


def wire_request(request: ModelRequest, vendor: Vendor) -> Body:
    """The body of `POST /chat/completions`."""
    vendor = for_model(vendor, request.model)
    body: Body = {"model": request.model, "messages": conversation(request, vendor), "stream": True}
    if vendor.stream_options:
        body["stream_options"] = {"include_usage": True}
    facts = request.facts
    body[vendor.limit_field] = min(request.max_tokens, facts.max_output) if facts.known else request.max_tokens
    if vendor.prompt_cache_key and request.conversation:
        body["prompt_cache_key"] = hashlib.sha256(request.conversation.encode(errors="replace")).hexdigest()
    body |= _tool_members(request, vendor)
    return body | thinking_members(request, vendor, armed="tools" in body)


def _tool_members(request: ModelRequest, vendor: Vendor) -> Body:
    """`tools` and `tool_choice`. A history with calls always has some tool declared."""
    called = [call.name for it in request.messages if isinstance(it, AssistantMessage) for call in it.calls]
    if not request.tools:
        forgotten = [_forgotten(name) for name in dict.fromkeys(wire_name(name) for name in called)]
        return _with_choice({"tools": forgotten}, "none", vendor) if forgotten else {}
    choice = _choice(request, vendor)
    if choice == "none" and "none" not in vendor.choices and not called:
        log.info("tools_left_out", model=request.model, reason=f"{vendor.name} has no tool_choice none")
        return {}
    return _with_choice({"tools": _tools(request.tools, vendor)}, choice, vendor)


def _with_choice(members: Body, choice: str | OneTool, vendor: Vendor) -> Body:
    """`auto` is the default wherever there are tools, and not said unless the vendor wants to hear it."""
    if isinstance(choice, OneTool):
        return members | {"tool_choice": {"type": "function", "function": {"name": choice.name}}}
    explicit = vendor.always_choice if choice == "auto" else choice in vendor.choices
    return members | {"tool_choice": choice} if explicit else members


def _choice(request: ModelRequest, vendor: Vendor) -> str | OneTool:
    refused = ""
    if not request.facts.forced_tool:
        refused = "this model cannot be forced to call a tool"
    elif not vendor.forced_while_thinking and may_think(request):
        refused = f"{vendor.name} forces no tool while the model thinks"
    return settled(
        request,
        required=refused or ("" if "required" in vendor.choices else f"{vendor.name} has no tool_choice required"),
        named=refused or ("" if "named" in vendor.choices else f"{vendor.name} names no tool in tool_choice"),
    )


def _tools(tools: Sequence[ToolSpec], vendor: Vendor) -> list[Object]:
    return [
        _tool(
            tool.name,
            _cut(well_formed(tool.description or tool.summary or tool.name), vendor.description_chars_max),
            parameters(tool.input_schema, inline_defs=vendor.inline_defs),
        )
        for tool in tools
    ]


def _tool(name: str, description: str, schema: Object) -> Object:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def _forgotten(name: str) -> Object:
    """A tool that the agent no longer has, but that its history calls."""
    return _tool(name, "No longer available.", parameters({}, inline_defs=False))


def _cut(text: str, chars_max: int | None) -> str:
    return text if chars_max is None or len(text) <= chars_max else text[: chars_max - 1] + "…"
