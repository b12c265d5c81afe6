"""Builds one runner for each agent of the config, with all that they share."""

import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from agents.model import Models
from agents.runner import AgentRunner
from channels.channel import Channel
from gateway.config.root import Config
from gateway.outbox import ChannelMessenger
from skills.catalog import SkillCatalog
from tools.config import effective_exec, effective_files


def build_runners(
    config: Config,
    models: Models,
    channels: Mapping[tuple[str, str], Channel],
    environment: Mapping[str, str],
    now: Callable[[], float],
) -> dict[str, AgentRunner]:
    """One runner per agent; they share the skill catalogue and the messenger."""
    shipped = Path(__file__).resolve().parent.parent / "skills"
    catalog = SkillCatalog(
        roots=[shipped, *map(Path, config.skills.directories)],
        env=environment,
        which=shutil.which,
        platform=sys.platform,
    )
    messenger = ChannelMessenger(channels, now=now)
    return {
        agent.id: AgentRunner(
            agent,
            models=models,
            catalog=catalog,
            exec_config=effective_exec(config.tools.exec, agent.tools),
            files_config=effective_files(config.tools.files, agent.tools),
            messenger=messenger,
            limits=config.limits,
            now=now,
        )
        for agent in config.agents.list
    }
