"""The product without any key: the scripted model that ships really works with the agent's tools, and says what it is."""

from pathlib import Path

import pytest

from tests.running import running

GUIDE = """
agents:
  list:
    - id: helper
      model: demo/guide
      tools: { allow: [read, write, edit, ls, exec, message] }
"""


@pytest.mark.parametrize("asked", ["帮我写一个 Python 脚本,列出所有文件", "write me a python script that lists files"])
async def test_it_makes_a_real_file_and_says_that_it_is_a_script(tmp_path: Path, asked: str) -> None:
    async with running(tmp_path, agents=GUIDE) as house:
        await house.say(asked)
        (reply,) = await house.replies(1)
        assert "demo/guide" in reply
        assert "ANTHROPIC_API_KEY" in reply
        made = [path for path in house.workspace().iterdir() if path.suffix == ".py"]
        assert len(made) == 1
        assert made[0].name in reply
        assert made[0].read_text(encoding="utf-8").startswith("#!")
        compile(made[0].read_text(encoding="utf-8"), made[0].name, "exec")
        assert house.anthropic.requests == []
