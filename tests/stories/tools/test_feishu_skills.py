"""The shipped skills for Feishu: every example in them is a call that the tool sends and the platform accepts."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.feishu.workplace import APP, BASE, CALENDAR, DOC, NODE, SHEET
from tests.emulators.models.script import calls, says
from tests.running import FEISHU, feishu_emulator, running
from tests.stories.at_work import results
from tools.feishu.areas import ENDPOINTS

ROOT = Path(__file__).parents[3]
SKILLS = sorted(it.parent.name for it in ROOT.glob("skills/feishu-*/SKILL.md"))
LINES_MAX = 120
AGENTS = """
agents:
  list:
    - id: helper
      model: anthropic/claude-sonnet-4-6
      tools: { allow: [feishu, read] }
    - id: other
      model: anthropic/claude-sonnet-4-6
      tools: { allow: [read] }
"""
AREAS = "wiki, sheets, bitable, calendar, tasks, contacts"
AS_APP = f"tools: {{ feishu: {{ areas: [{AREAS}], as: app, write: allow }} }}"


def examples(skill: str) -> list[dict[str, Any]]:
    text = (ROOT / "skills" / skill / "SKILL.md").read_text(encoding="utf-8")
    return [json.loads(it) for it in re.findall(r"^```json\n(.*?)^```", text, re.M | re.S)]


@pytest.mark.parametrize("skill", SKILLS)
async def test_feishu_skill_examples_run_against_the_platform(tmp_path: Path, skill: str) -> None:
    emulator = feishu_emulator()
    work = emulator.workplace
    work.app_scopes |= {scope for it in ENDPOINTS for scope in it.scopes}
    work.grant(APP, DOC, SHEET, BASE, NODE, CALENDAR)
    emulator.users["ou_a11ce0000000000000000000000000"] = "Ann"
    found = examples(skill)
    script = [calls(*(("feishu", it) for it in found)), says("all tried")]
    async with running(tmp_path, agents=AGENTS, feishu=FEISHU, more=AS_APP, emulator=emulator, script=script) as house:
        await house.say("try the skill")
        await house.replies(1)
        answers = results(house.anthropic.requests[-1].body)[-len(found) :]
        assert [it for it in answers if "EXTERNAL_CONTENT" not in it] == []
        assert len(work.called) == len(found) > 0


def test_feishu_skills_are_short_and_five() -> None:
    assert [f"feishu-{it}" for it in ("bitable", "calendar", "people", "sheets", "tasks")] == SKILLS
    lengths = [len((ROOT / "skills" / it / "SKILL.md").read_text(encoding="utf-8").splitlines()) for it in SKILLS]
    assert max(lengths) < LINES_MAX


async def test_feishu_skills_are_offered_only_with_the_tool(tmp_path: Path) -> None:
    for areas, is_offered in ((AS_APP, True), ("", False)):
        folder = tmp_path / str(is_offered)
        folder.mkdir()
        async with running(folder, agents=AGENTS, more=areas, script=[says("hello")]) as house:
            await house.say("hi")
            await house.replies(1)
            assert ("feishu-tasks" in str(house.anthropic.requests[0].body["system"])) is is_offered
