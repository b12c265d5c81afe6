"""Which tool choice is sent where a vendor does not take the one that was asked for."""

from dataclasses import replace

import pytest

from agents.providers.provider import OneTool, ToolChoice
from agents.providers.request import settled
from tests.agents.providers.requests import LS, READ, asking

NO = "not here"


@pytest.mark.parametrize(
    ("wanted", "tools", "required", "named", "sent"),
    [
        ("auto", 2, NO, NO, "auto"),
        ("none", 2, NO, NO, "none"),
        ("required", 2, "", "", "required"),
        ("required", 2, NO, "", "auto"),
        ("required", 1, NO, "", OneTool(name="ls")),
        ("required", 1, NO, NO, "auto"),
        (OneTool(name="ls"), 2, NO, "", OneTool(name="ls")),
        (OneTool(name="ls"), 2, "", NO, "auto"),
        (OneTool(name="gone"), 2, "", "", "auto"),
    ],
)
def test_the_nearest_choice_that_the_vendor_takes(
    wanted: ToolChoice, tools: int, required: str, named: str, sent: ToolChoice
) -> None:
    request = asking(tools=(LS, READ)[:tools], tool_choice=wanted)
    assert settled(request, required=required, named=named) == sent


@pytest.mark.parametrize(("wanted", "sent"), [("required", "auto"), (OneTool(name="ls"), "auto"), ("none", "none")])
def test_a_model_that_cannot_be_forced_is_not_forced_on_any_wire(wanted: ToolChoice, sent: ToolChoice) -> None:
    request = asking(tool_choice=wanted)
    assert settled(replace(request, facts=replace(request.facts, forced_tool=False))) == sent
