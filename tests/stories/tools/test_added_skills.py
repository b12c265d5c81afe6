"""Skills from elsewhere, beside a serving gateway: there from the next message on, gone once they are changed."""

import asyncio
import re
from pathlib import Path

from typer.testing import CliRunner

from gateway.cli import app
from skills.frontmatter import read_head
from tests.gateway.test_skills_command import DOCUMENT, git
from tests.running import SECRETS, running
from tests.stories.at_work import prompt, works

PAGE = Path(__file__).resolve().parents[3] / "docs" / "add-a-skill.md"
AGENTS = "agents: { list: [ { id: helper, model: anthropic/claude-sonnet-4-6, tools: { allow: [read, ls] } } ] }"


def blocks(kind: str) -> list[str]:
    """The blocks of this kind in the page."""
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.S | re.M)


async def test_skill_is_offered_from_the_next_message_until_changed(tmp_path: Path) -> None:
    source = tmp_path / "greetings"
    (source / "greet").mkdir(parents=True)
    (source / "greet" / "SKILL.md").write_text(DOCUMENT.format(name="greet"))
    git(source, "init", "-q")
    git(source, "add", "-A")
    git(source, "commit", "-q", "-m", "one")
    house_folder = tmp_path / "house"
    house_folder.mkdir()
    async with running(house_folder, agents=AGENTS) as house:
        await works(house)
        assert "<name>greet</name>" not in prompt(house)
        words = ["skills", "add", str(source), "--yes", "--config", str(house_folder / "config.yaml")]
        result = await asyncio.to_thread(CliRunner().invoke, app, words, env=SECRETS)
        assert result.exit_code == 0, result.output
        (text,) = await works(house, ("read", {"file_path": "./skills/greet/SKILL.md"}))
        assert "<name>greet</name>" in prompt(house)
        assert "Say hello." in text
        (house_folder / "skills.d" / "greet" / "extra.sh").write_text("echo\n")
        await works(house)
        assert "<name>greet</name>" not in prompt(house)


def test_skill_page_examples_work(tmp_path: Path) -> None:
    (document,) = blocks("markdown")
    head = read_head(document)
    assert (head.name, head.requires.bins) == ("write-release-notes", ("git",))
    repository = tmp_path / "published"
    for folder in (tmp_path / "greetings" / "greet", repository / "write"):
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(document.replace("write-release-notes", folder.name))
    git(repository, "init", "-q")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "one")
    config = tmp_path / "config.yaml"
    config.write_text("agents: { list: [ { id: helper, model: demo/guide } ] }\n")
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(lines) == 5
    for line in lines:
        for shown, there in (("https://github.com/you/skills", repository), ("./greetings", tmp_path / "greetings")):
            line = line.replace(shown, str(there))
        words = [*line.split()[1:], "--config", str(config)]
        result = CliRunner().invoke(app, words, input="y\n", env={"HOME": str(tmp_path)})
        assert result.exit_code == 0, (line, result.output)
