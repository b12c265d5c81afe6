"""The policy of tools: what a layer takes away nobody gives back."""

import ast
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.section import Profile, ToolLists
from tests.parsed import ROOT, parsed
from tools.catalog import NAMES, Toolbox, offered
from tools.config import AgentToolsConfig, ToolsConfig
from tools.policy import GROUPS, PROFILES, owners_layer, permitted

_NAMES = st.lists(st.sampled_from([*NAMES, *GROUPS, "*", "nope", "group:nope"]), max_size=6).map(tuple)
_LISTS = st.fixed_dictionaries(
    {"deny": _NAMES}, optional={"allow": _NAMES, "profile": st.sampled_from(get_args(Profile))}
).map(ToolLists.model_validate)


@given(st.lists(_LISTS, max_size=5), _LISTS)
def test_a_layer_takes_away_and_never_gives_back(layers: list[ToolLists], one: ToolLists) -> None:
    before = permitted(tuple(layers), NAMES)
    after = permitted((*layers, one), NAMES)
    assert set(after) <= set(before)
    assert after == tuple(name for name in NAMES if name in after)
    assert after == permitted((one, *reversed(layers)), NAMES) == permitted((one,), before)


@given(_LISTS)
def test_what_is_denied_is_gone_whatever_is_allowed(lists: ToolLists) -> None:
    left = permitted((lists,), NAMES)
    denied = {name for it in lists.deny for name in (NAMES if it == "*" else GROUPS.get(it, (it,)))}
    assert denied.isdisjoint(left)


def test_tool_policy_groups_and_profiles_are_complete() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert len(grouped) == len(set(grouped))
    assert set(NAMES) <= set(grouped)
    assert set(PROFILES) == set(get_args(Profile))
    assert {it for names in PROFILES.values() for it in names} <= {*grouped, *GROUPS, "*"}


@pytest.mark.parametrize(
    ("everybody", "agent", "left"),
    [
        ({}, {}, "read ls message ask"),
        ({}, {"profile": "minimal"}, "read ls message ask"),
        ({}, {"profile": "messaging"}, "read ls message memory_search memory_get ask"),
        ({}, {"profile": "coding"}, "read write edit ls exec message memory_search memory_get task ask"),
        (
            {},
            {"profile": "full"},
            "read write edit ls exec message memory_search memory_get web_fetch task schedule ask",
        ),
        ({}, {"profile": "full", "allow": ["group:web", "read"]}, "read web_fetch"),
        ({}, {"profile": "minimal", "allow": ["*"]}, "read ls message ask"),
        (
            {},
            {"profile": "full", "deny": ["group:runtime", "group:files"]},
            "message memory_search memory_get web_fetch task schedule ask",
        ),
        ({}, {"allow": ["group:files"], "deny": ["write", "edit"]}, "read ls"),
        ({}, {"allow": ["*"], "deny": ["*"]}, ""),
        ({}, {"allow": []}, ""),
        ({"deny": ["exec"]}, {"allow": ["exec", "read"]}, "read"),
        ({"allow": ["read"]}, {"allow": ["*"]}, "read"),
        ({"allow": []}, {"allow": ["*"]}, ""),
        ({"profile": "messaging"}, {"profile": "coding"}, "read ls message memory_search memory_get ask"),
        (
            {"web": {"search": {"provider": "searxng", "baseUrl": "http://s"}}},
            {"allow": ["group:web"]},
            "web_fetch web_search",
        ),
    ],
)
def test_what_an_agent_has(everybody: dict[str, Any], agent: dict[str, Any], left: str) -> None:
    found = offered(
        ToolsConfig.model_validate(everybody), AgentToolsConfig.model_validate(agent), off=("handover", "group_history")
    )
    assert [name for name in found if name not in ("grep", "find", "process")] == left.split()


@pytest.mark.parametrize(
    ("listed", "has_owners", "gone"),
    [
        ({}, True, ("group:runtime",)),
        ({}, False, None),
        ({"ownerOnly": []}, True, None),
        ({"ownerOnly": ["write"]}, False, ("write",)),
    ],
)
def test_what_is_the_owners_alone(listed: dict[str, Any], has_owners: bool, gone: tuple[str, ...] | None) -> None:
    layer = owners_layer(ToolsConfig.model_validate(listed), has_owners=has_owners)
    assert (layer.deny if layer else None) == gone


def test_a_toolbox_hands_out_what_is_permitted_whatever_source_it_is_from() -> None:
    class Foreign:
        def __init__(self, name: str) -> None:
            self.spec: Any = type("Spec", (), {"name": name})()

    layers = (ToolLists(deny=("theirs_b",)), ToolLists(allow=("theirs_a", "theirs_b")))
    tools: list[Any] = [Foreign("theirs_a"), Foreign("theirs_b"), Foreign("theirs_c")]
    toolbox = Toolbox(tools, layers=layers, argument_bytes_max=100)
    assert [it.name for it in toolbox.specs] == ["theirs_a"]
    assert toolbox.effect("theirs_b") == "once"  # as of one that is not there


def test_tools_are_handed_out_in_one_place() -> None:
    """A set of tools that is built elsewhere would be one that no policy has seen."""
    made = [
        (path.relative_to(ROOT).as_posix(), node.func.id)
        for path, nodes in parsed().items()
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Toolbox", "Catalog")
    ]
    assert sorted(made) == [("agents/runner.py", "Catalog"), ("agents/runner.py", "Toolbox")]
