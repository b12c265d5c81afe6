"""Which tool choice a wire is sent: the agent's, or the nearest that the model takes, with the reason in the log.

What a wire cannot demand is also asked for in the prompt (`agents.runner`), so a degraded choice is still a wish.
"""

import structlog

from agents.providers.provider import ModelRequest, OneTool, ToolChoice

log = structlog.get_logger()


def settled(request: ModelRequest, *, required: str = "", named: str = "") -> ToolChoice:
    """The choice to send for a request that has tools. `required` and `named` say why this wire does not take that
    form, or are empty where it does; a `required` that is refused becomes the named form where there is one tool."""
    wanted = request.tool_choice
    names = [tool.name for tool in request.tools]
    if wanted in ("auto", "none"):
        return wanted
    if isinstance(wanted, OneTool):
        if wanted.name not in names:
            return _degraded(request, "auto", f"the agent has no tool {wanted.name}")
        return _degraded(request, "auto", named) if named else wanted
    if not required:
        return wanted
    if len(names) == 1 and not named:
        return _degraded(request, OneTool(name=names[0]), required)
    return _degraded(request, "auto", required)


def _degraded(request: ModelRequest, to: ToolChoice, reason: str) -> ToolChoice:
    log.info(
        "tool_choice_degraded", model=request.model, wanted=_shown(request.tool_choice), to=_shown(to), reason=reason
    )
    return to


def _shown(choice: ToolChoice) -> str:
    return choice.name if isinstance(choice, OneTool) else choice
