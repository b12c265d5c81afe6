"""External skills: preview, add, update and remove them.

A skill is written to a temporary folder and renamed into place, so that no turn reads a partial one; then the lock is
written.
"""

import difflib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agents.language import Language
from gateway.config.load import Loaded
from gateway.program import OperatorError
from skills.catalog import sees
from skills.lock import BadFolder, BadLock, Pin, SkillFile, SkillLock, files_in, hash_of
from skills.source import BadSource, FoundSkill, Source, read_source, shown

DIFFERENCE_LINES_MAX = 2_000
_PROGRAM_ENDINGS = (".py", ".sh", ".bash", ".zsh", ".js", ".mjs", ".ts", ".rb", ".pl", ".php", ".lua", ".ps1", ".bat")
_PROGRAM_HEADS = (b"#!", b"\x7fELF", b"MZ", b"\xca\xfe\xba\xbe", b"\xcf\xfa\xed\xfe", b"\0asm")


class AddedSkills:
    """The added skills of one config. Every method may raise OperatorError."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self.folder = Path(loaded.config.skills.added_dir)
        self._lock = SkillLock(self.folder)

    def pins(self) -> Mapping[str, Pin]:
        try:
            return self._lock.pins()
        except BadLock:
            message = f"{self._lock.path} cannot be read: restore it, or remove it and add the skills again"
            raise OperatorError(message) from None

    def pin(self, name: str) -> Pin:
        if (pin := self.pins().get(name)) is None:
            raise OperatorError(f"no skill named {shown(name)} was added — `skills list` shows those that were")
        return pin

    def read(self, source: str, ref: str) -> Source:
        try:
            return read_source(source, self._loaded.environment, ref=ref)
        except BadSource as error:
            raise OperatorError(str(error)) from None

    def chosen(self, source: Source, names: list[str], *, everything: bool) -> list[FoundSkill]:
        """Return the wanted skills of a source, which must not be there yet."""
        there = {it.name: it for it in source.skills}
        if missing := [it for it in names if it not in there]:
            raise OperatorError(f"it has no skill named {shown(', '.join(missing))}; it has: {', '.join(there)}")
        if not names and not everything and len(there) > 1:
            raise OperatorError(f"it has {len(there)} skills: {', '.join(there)} — name those to add, or say --all")
        skills = [there[it] for it in dict.fromkeys(names)] or [*there.values()]
        for skill in skills:
            if skill.name in self.pins():
                message = f"{skill.name} was added already — `skills update {skill.name}` shows what is new"
                raise OperatorError(message)
            if self._files(skill.name) not in (None, {it.path: it for it in skill.files}):
                raise OperatorError(
                    f"{self.folder / skill.name} is there and was not added by this command: move it away"
                )
        return skills

    def described(self, skill: FoundSkill, source: Source) -> Iterator[str]:
        """Describe a skill for the confirmation before it is added."""
        yield f"{skill.name}: {skill.head.description}"
        yield f"  from {_origin(source, skill)}"
        needs = skill.head.requires
        if any((needs.bins, needs.env, needs.os)):
            yield f"  needs {', '.join((*needs.bins, *(f'${it}' for it in needs.env), *needs.os))}"
        seen = (it for skills in self._loaded.skills.values() for it in skills if it.name == skill.name)
        if any(it.source == "shared" and not it.directory.is_relative_to(self.folder) for it in seen):
            yield f"  takes the place of the skill {skill.name} that is there"
        for file in sorted(skill.files, key=lambda it: it.path):
            yield f"  {len(file.content):>9,} B  {file.path}{'  (a program)' if is_program(file) else ''}"
        for path in skill.left_out:
            yield f"  left out, a link or a submodule: {shown(path)}"

    def add(self, skill: FoundSkill, source: Source, ref: str) -> None:
        pin = Pin(source=source.address, place=skill.place, ref=ref, commit=source.commit, hash=hash_of(skill.files))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._put(skill)
            self._lock.write({**self.pins(), skill.name: pin})
        except OSError as error:
            raise OperatorError(f"{error.filename or self.folder}: {error.strerror}") from None

    def _put(self, skill: FoundSkill) -> None:
        folder, target = Path(tempfile.mkdtemp(prefix=".new-", dir=self.folder)), self.folder / skill.name
        try:
            for file in skill.files:
                path = folder / file.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.content)
                path.chmod(0o755 if file.executable else 0o644)
            folder.chmod(0o755)
            if os.path.lexists(target):
                target.rename(folder.with_name(f"{folder.name}-old"))
            folder.rename(target)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(folder.with_name(f"{folder.name}-old"), ignore_errors=True)

    def newest(self, name: str) -> tuple[FoundSkill, Source]:
        """Return an added skill's current version at its source."""
        pin = self.pin(name)
        source = self.read(pin.source, pin.ref)
        skill = next((it for it in source.skills if it.place == pin.place), None)
        if skill is None or skill.name != name:
            reason = source.unusable.get(pin.place, f"it is no longer at {pin.place or 'the top of the repository'}")
            raise OperatorError(f"{name}: {shown(pin.source)} has no such skill any more: {reason}")
        return skill, source

    def is_current(self, skill: FoundSkill) -> bool:
        """Return whether the installed files equal the lock's and the source's."""
        there = self._files(skill.name)
        return there == {it.path: it for it in skill.files} and self.pin(skill.name).hash == hash_of(skill.files)

    def differences(self, skill: FoundSkill) -> Iterator[str]:
        """Yield the diff between the installed files and an update."""
        before, after = self._files(skill.name) or {}, {it.path: it for it in skill.files}
        left = DIFFERENCE_LINES_MAX
        for path in sorted(before.keys() | after.keys()):
            for line in _difference(path, before.get(path), after.get(path)):
                left -= 1
                if left < 0:
                    yield f"… the difference is longer than {DIFFERENCE_LINES_MAX:,} lines: read {skill.name} at its source"
                    return
                yield line

    def _files(self, name: str) -> dict[str, SkillFile] | None:
        """The files that are there, by path; empty for what is no skill's folder, None for nothing at all."""
        if not os.path.lexists(self.folder / name):
            return None
        try:
            return {it.path: it for it in files_in(self.folder / name)}
        except (BadFolder, OSError):
            return {}

    def remove(self, name: str) -> None:
        pins = {other: pin for other, pin in self.pins().items() if other != name}
        try:
            self._lock.write(pins)
            if (self.folder / name).is_symlink():
                (self.folder / name).unlink()
            elif (self.folder / name).exists():
                shutil.rmtree(self.folder / name)
        except OSError as error:
            raise OperatorError(f"{error.filename or self.folder}: {error.strerror}") from None

    def listed(self) -> list[dict[str, Any]]:
        pins = self.pins()
        folders = [it.name for it in self.folder.iterdir() if it.is_dir()] if self.folder.is_dir() else []
        refused = self._lock.refusals(it for it in folders if it[0] not in "._")
        return [
            {"name": name, "state": refused.get(name, "ok"), **(asdict(pins[name]) if name in pins else {})}
            for name in sorted({*pins, *refused})
        ]

    def seen_by(self, skill: FoundSkill) -> list[str]:
        """List the agents whose `skills` lists allow it."""
        return [agent.id for agent in self._loaded.config.agents.list if sees(agent.skills, skill.name)]


def is_program(file: SkillFile) -> bool:
    return file.executable or file.path.endswith(_PROGRAM_ENDINGS) or file.content.startswith(_PROGRAM_HEADS)


_STATES = {"ok": "正常", "unreadable": "无法读取", "unlisted": "未锁定", "missing": "缺失", "changed": "有变化"}


def line(it: Mapping[str, Any], language: Language = "en") -> str:
    zh = language == "zh"
    state = _STATES.get(it["state"], it["state"]) if zh else it["state"]
    if "source" not in it:
        return f"{it['name']}  {state}"
    commit = it["commit"][:12] or ("文件夹" if zh else "a folder")
    return f"{it['name']}  {state}  {commit}  {it['source']} {it['place']}".rstrip()


def _origin(source: Source, skill: FoundSkill) -> str:
    at = f" at {source.commit[:12]}" if source.commit else ""
    return f"{shown(source.address)}{at}{f', {shown(skill.place)}' if skill.place else ''}"


def _difference(path: str, before: SkillFile | None, after: SkillFile | None) -> Iterator[str]:
    if before == after:
        return
    old, new = before.content if before else b"", after.content if after else b""
    if after and is_program(after) and not (before and is_program(before)):
        yield f"{shown(path)}: a program from now on"
    if b"\0" in old + new:
        yield f"{shown(path)}: not a text, {len(old):,} B before, {len(new):,} B after"
        return
    names = f"before/{path}" if before else "/dev/null", f"after/{path}" if after else "/dev/null"
    texts = [it.decode(errors="replace").splitlines() for it in (old, new)]
    lines = difflib.unified_diff(texts[0], texts[1], *names, lineterm="")
    yield from (shown(it.replace("\t", "    "), 2_000) for it in lines)
