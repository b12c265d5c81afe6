"""What a provider's prompt cache sees: equal beginnings, from request to request and from turn to turn."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agents.messages import Message
from agents.providers.anthropic import wire_request
from gateway.commands.catalog import COMMANDS
from gateway.config.commands import ALIASES
from gateway.store.records import SessionMark
from tests.agents.providers.requests import asking, assistant, call, result, user
from tests.demo.makers import MAKERS
from tests.emulators.models.script import calls, says
from tests.running import AGENTS, ALICE, BOB, FEISHU, Running, running
from tests.stories.turns.test_long_turns import made_by
from tests.stories.turns.test_sessions import IN_GROUP

LOOK = ("ls", {"path": "."})
CACHE_MARK = ', "cache_control": {"type": "ephemeral"}'


def cached_form(body: dict[str, Any]) -> str:
    """A request in the order in which the cache reads it, without what is no part of the prompt."""
    parts = [
        body.get("tools"),
        body.get("system", body.get("instructions")),
        *body.get("messages", body.get("input", ())),
    ]
    return "\n".join(json.dumps(part, ensure_ascii=False).replace(CACHE_MARK, "") for part in parts)


def common(one: str, two: str) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))


async def forget(house: Running, turn: int) -> None:
    (opened,) = {event.turn.session for event in house.events if hasattr(event, "turn")}
    await house.idle()
    await house.gateway.runtime.store.mark(opened, SessionMark(turn=turn, kind="new", at=0))


@pytest.mark.parametrize("api", ["anthropic-messages", "openai-responses"])
async def test_prompt_cache_hits_within_and_between_turns(tmp_path: Path, api: str) -> None:
    script = [calls(LOOK), calls(LOOK, LOOK), says("one"), calls(LOOK), says("two"), says("three"), says("anew")]
    async with made_by(MAKERS[api], tmp_path, script, window=200_000) as (house, model):
        for number, text in enumerate(["first", "second", "third"], 1):
            await house.say(text)
            await house.replies(number)
            await house.idle()
        await forget(house, 3)
        await house.say("fourth")
        await house.replies(4)
        bodies = [received.body for received in model.requests]
        forms = [cached_form(body) for body in bodies]
        for before, after in [(0, 1), (1, 2), (3, 4)]:
            assert forms[after].startswith(forms[before])
        for first, last, following in [(0, 2, 3), (3, 4, 5)]:  # the request before a turn's own message is read again
            begin = forms[first].index("## Inbound Context (trusted")
            assert common(forms[last], forms[following]) == begin
        prompt = forms[0].index('{"role": "user"')
        assert common(forms[5], forms[6]) > prompt
        assert "first" not in forms[6][prompt:]
        assert len({body.get("prompt_cache_key") for body in bodies}) == 1
        assert ("prompt_cache_key" in bodies[0]) == (api == "openai-responses")


def test_prompt_cache_marks_match_the_next_turn() -> None:
    def marked(*rounds: int) -> list[str]:
        """Where the marks stand: the texts of the marked blocks, behind turns with so many calls each."""
        messages: list[Message] = []
        for turn, count in enumerate(rounds):
            messages.append(user(f"turn {turn}"))
            for n in range(count):
                messages += [assistant(call(f"c{turn}_{n}")), result(f"c{turn}_{n}", f"result {turn}.{n}")]
            messages.append(assistant(call(f"end{turn}")))
            messages.append(result(f"end{turn}", f"end of turn {turn}"))
        body = wire_request(asking(*messages, user("now")))
        blocks = [*body["tools"], *body["system"], *(it for message in body["messages"] for it in message["content"])]
        return [
            str(block.get("name") or block.get("text") or block.get("content"))
            for block in blocks
            if "cache_control" in block
        ]

    assert marked() == ["ls", "You are a helper.", "now"]
    assert marked(1, 1) == ["ls", "You are a helper.", "end of turn 1", "now"]
    assert marked(1, 30) == ["You are a helper.", "end of turn 0", "end of turn 1", "now"]


HEARING = {"listen", "unlisten", "why"}
COMMAND_POLICIES: list[tuple[str, dict[str, Any], set[str], set[str]]] = [
    ("", {}, {"help", "new", "model", "think", "reasoning"}, {"why"}),
    ("", IN_GROUP, {"help", "new", "think", "reasoning"}, {"model"} | HEARING),
    ("commands: { model: off, usage: off, new: owner }", {}, {"help", "think"}, {"new", "why"}),
    ("commands: { model: everyone, reasoning: off }", IN_GROUP, {"help", "model"}, HEARING),
]
ELSEWHERE = {"tasks", "schedules", "approve", "approvals", "pair", "claim", "agent", "login", "logout", "human", "back"}
"""The commands that would do nothing for an owned bot without pairing, whose one agent has tools for files alone."""


@pytest.mark.parametrize(("policy", "where", "everybodys", "owners"), COMMAND_POLICIES)
async def test_prompt_cache_prompt_is_the_same_for_everybody_in_a_chat(
    tmp_path: Path, policy: str, where: dict[str, Any], everybodys: set[str], owners: set[str]
) -> None:
    more = f'owners: ["feishu:{ALICE}"]\n{policy}'
    agents = AGENTS.replace("exec, message", "grep")  # a tool of owners alone would make another prompt
    listed = f'{FEISHU}    allowFrom: ["{BOB}"]\n'  # or an open chat would hide the private files from him
    async with running(tmp_path, script=lambda _: says("yes"), agents=agents, more=more, feishu=listed) as house:
        for text, sender in (("one", ALICE), ("two", BOB), ("/reasoning on", ALICE), ("three", ALICE), ("four", BOB)):
            await house.say(text, sender=sender, **where)
            await house.idle()
        prompts = [[block["text"] for block in it.body["system"]] for it in house.anthropic.requests]
    assert len(prompts) == 4
    (stable,) = {prompt[0] for prompt in prompts}
    section = stable.partition("## Gateway Control\n")[2].partition("\n\n")[0]
    named = [set(re.findall(r"/(\w+)", line)) for line in section.splitlines()[1:]]
    config = house.gateway.config
    switched_off = {name for name, audience in config.commands.items() if audience == "off"}
    others = ELSEWHERE | ALIASES | switched_off | ({"forget", "mydata"} if where else {"listen", "unlisten"})
    assert named[0] | (named[1] if len(named) > 1 else set()) == set(COMMANDS) - others
    assert named[0] >= everybodys
    assert (named[1] if len(named) > 1 else set()) == owners
    can_switch = "reasoning" not in switched_off
    for prompt, is_on in zip(prompts, (False, False, can_switch, can_switch), strict=True):
        words = "on: people read it above your answers" if is_on else "off: people do not see it"
        switch = f" (/reasoning {'off' if is_on else 'on'} changes that)" if can_switch else ""
        assert f"\nReasoning: {words}{switch}" in prompt[1]
