"""Warnings of skills: folders that are not there or that an agent can change, and added skills that are not used."""

from functools import partial
from pathlib import Path

from channels.bilingual import Bilingual
from gateway.config.problems import Key, Warned, keyed
from gateway.config.root import Config
from gateway.program import COMMAND, program
from skills.lock import LOCK, LockRefusal, SkillLock

NO_FOLDER = Bilingual("make it, or take it out of the list", "请创建它，或从列表中去掉")


def skill_warnings(config: Config) -> Warned:
    added = config.skills.added_dir
    yield from _added_skills(Path(added))
    named: dict[Key, str] = {("skills", "directories", index): it for index, it in enumerate(config.skills.directories)}
    for key, directory in {("skills", "addedDir"): added, **named}.items():
        if key in named and not Path(directory).is_dir():
            yield key, keyed(key, Bilingual("there is no such folder", "没有这个文件夹")), NO_FOLDER
        for agent in config.agents.list:
            if Path(agent.workspace_dir) in (Path(directory), *Path(directory).parents):
                inside = Bilingual(
                    f"lies in the workspace of agent {agent.id}, whose tools can change it for every agent",
                    f"位于智能体 {agent.id} 的工作目录中，它的工具可以替所有智能体改动其内容",
                )
                yield key, keyed(key, inside), Bilingual("move it out", "请移到别处")


def _added_skills(folder: Path) -> Warned:
    """The added skills that are not used."""
    there = (it.name for it in folder.iterdir() if it.is_dir() and it.name[0] not in "._") if folder.is_dir() else ()
    for name, reason in SkillLock(folder).refusals(there).items():
        what, fix = _REFUSED[reason]
        where = folder.parent / name if name == LOCK else folder / name
        yield (), Bilingual(f"skill {where}: {what}", f"技能 {where}：{what.zh}"), fix.each(partial(_named, name))


def _named(name: str, text: str) -> str:
    return text.replace("NAME", name).replace(COMMAND, program())


_REFUSED: dict[LockRefusal, tuple[Bilingual, Bilingual]] = {
    "changed": (
        Bilingual("has changed since it was added, and is not used", "添加后被改动过，因此不使用"),
        Bilingual("`clawgate skills update NAME` shows the difference", "用 `clawgate skills update NAME` 查看差异"),
    ),
    "missing": (
        Bilingual("is in skills.lock, and its folder is not there", "记录在 skills.lock 中，但文件夹不存在"),
        Bilingual(
            "`clawgate skills update NAME` fetches it again, `clawgate skills remove NAME` forgets it",
            "用 `clawgate skills update NAME` 重新获取，或用 `clawgate skills remove NAME` 移除记录",
        ),
    ),
    "unlisted": (
        Bilingual("is not in skills.lock, and is not used", "不在 skills.lock 中，因此不使用"),
        Bilingual(
            "move it away and add it with `clawgate skills add`, or move it to a folder of skills.directories",
            "请移走后用 `clawgate skills add` 添加，或移到 skills.directories 的文件夹中",
        ),
    ),
    "unreadable": (
        Bilingual("is not used: skills.lock cannot be read", "不使用：skills.lock 无法读取"),
        Bilingual(
            "restore the lock, or remove it and add the skills again",
            "请恢复该文件，或删除后重新添加这些技能",
        ),
    ),
}
