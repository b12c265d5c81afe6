"""The product without any key: the scripted model that ships really works with the agent's tools, and says what it is."""

from pathlib import Path

from tests.running import AGENTS, running


async def test_it_makes_a_real_file_and_says_that_it_is_a_script(tmp_path: Path) -> None:
    agents = AGENTS.replace("anthropic/claude-sonnet-4-6", "demo/guide")
    async with running(tmp_path, agents=agents) as house:
        for number, text in enumerate(
            ("帮我写一个 Python 脚本,列出所有文件", "write me a python script that lists files")
        ):
            before = {*house.workspace().iterdir()}
            await house.say(text)
            *_, reply, _ = await house.replies(2 * (number + 1))  # the script itself comes behind the text
            assert "demo/guide" in reply
            assert "ANTHROPIC_API_KEY" in reply
            (script,) = {*house.workspace().iterdir()} - before
            assert script.name in reply
            assert script.read_text(encoding="utf-8").startswith("#!")
            compile(script.read_text(encoding="utf-8"), script.name, "exec")
        assert house.anthropic.requests == []
