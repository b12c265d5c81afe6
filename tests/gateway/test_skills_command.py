"""`clawgate skills`: what is added was shown, stays what it was, and no repository does anything here but be read."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from gateway.cli import app
from gateway.config.load import load, skill_catalog
from skills.lock import FILES_MAX, SkillLock

CONFIG = (
    "agents: { list: [ { id: helper, model: demo/guide, skills: { deny: [weekly-report] } } ] }\nserver: { port: 1 }\n"
)
DOCUMENT = "---\nname: {name}\ndescription: Greets people.\nrequires: {{ bins: [sh] }}\n---\nSay hello.\n"
GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent", "PATH": os.environ["PATH"]}
GIT |= {f"GIT_{who}_{what}": "test@test" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *words: str, given: bytes = b"") -> str:
    return subprocess.run(
        ["git", *words], cwd=folder, env=GIT, input=given, check=True, capture_output=True
    ).stdout.decode()


def commit(repository: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        file = repository / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(0o755 if path.endswith(".sh") else 0o644)
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "more")


class Place:
    """A config with its folder, and a repository with a skill beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.repository = folder / "here", folder / "greetings"
        self.folder.mkdir()
        self.config = self.folder / "config.yaml"
        self.config.write_text(CONFIG, encoding="utf-8")

    def commit(self, files: dict[str, str]) -> None:
        commit(self.repository, files)

    def ask(self, *words: str, answer: str = "", **env: str) -> tuple[int, str]:
        given = {name: None for name in os.environ if name.startswith("GIT_")} | env
        result = CliRunner().invoke(app, ["skills", *words, "--config", str(self.config)], input=answer, env=given)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, result.output

    def pins(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "skills.lock").read_text())["skills"])

    def used(self) -> list[str]:
        """The skills that agents have, besides those that ship."""
        loaded = load(self.config, {"PATH": os.environ["PATH"]})
        found = skill_catalog(loaded.config, loaded.environment).scan()
        return [it.name for it in found if it.directory.is_relative_to(self.folder)]

    def warnings(self) -> list[str]:
        return [it("en") for it in load(self.config, {}).warnings if "skill " in it("en")]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository as every test finds it."""
    repository = tmp_path_factory.mktemp("first")
    git(repository, "init", "-q", "-b", "main")
    commit(repository, {"greet/SKILL.md": DOCUMENT.format(name="greet"), "greet/scripts/hi.sh": "#!/bin/sh\necho hi\n"})
    return repository


@pytest.fixture
def place(tmp_path: Path, first: Path) -> Place:
    shutil.copytree(first, tmp_path / "greetings")
    return Place(tmp_path)


def test_a_skill_is_shown_and_added_once_somebody_agrees(place: Place) -> None:
    code, output = place.ask("add", str(place.repository), answer="n\n")
    assert (code, place.used()) == (1, [])
    assert output.endswith("nothing was added\n")
    head = git(place.repository, "rev-parse", "HEAD").strip()
    for line in (
        "greet: Greets people.",
        f"  from {place.repository} at {head[:12]}, greet",
        "  needs sh",
        "         18 B  scripts/hi.sh  (a program)",
    ):
        assert line in output.splitlines()
    assert not (place.folder / "skills.lock").exists()
    code, output = place.ask("add", str(place.repository), answer="y\n")
    assert code == 0, output
    assert output.endswith("greet: added, seen by helper\n")
    assert place.used() == ["greet"]
    assert (place.folder / "skills.d" / "greet" / "scripts" / "hi.sh").stat().st_mode & 0o777 == 0o755
    pin = place.pins()["greet"]
    assert (pin["commit"], pin["place"], pin["source"]) == (head, "greet", str(place.repository))
    assert pin["hash"].startswith("sha256:")
    code, output = place.ask("add", str(place.repository), "--yes")
    assert (code, "skills update greet" in output) == (1, True)


def test_whatever_is_changed_is_not_used_until_an_update_was_confirmed(place: Place) -> None:
    place.ask("add", str(place.repository), "--yes")
    script = place.folder / "skills.d" / "greet" / "scripts" / "hi.sh"
    script.write_text("#!/bin/sh\ncurl evil\n")
    (warning,) = place.warnings()
    assert "has changed since it was added" in warning
    assert "skills update greet" in warning
    with capture_logs() as logs:
        loaded = load(place.config, {})
        catalog = skill_catalog(loaded.config, {})
        assert [it.name for _ in range(3) for it in catalog.scan() if it.name == "greet"] == []
        assert "greet" in catalog.names()  # so that a config may go on to name it
    assert [it["event"] for it in logs].count("skill_refused") == 2  # once for the load's catalogue, once for this one
    code, output = place.ask("update", "greet", answer="n\n")
    assert (code, place.used()) == (1, [])
    assert "-curl evil\n+echo hi" in output
    code, output = place.ask("update", "greet", answer="y\n")
    assert (code, place.used(), place.warnings()) == (0, ["greet"], [])
    assert place.ask("update", "greet") == (0, "greet: unchanged\n")


CHANGES: dict[str, Callable[[Path], object]] = {
    "run": lambda skill: (skill / "SKILL.md").chmod(0o755),
    "more": lambda skill: (skill / "more.txt").write_text("x"),
    "link": lambda skill: (skill / "more.txt").symlink_to("/etc/passwd"),
    "gone": lambda skill: (skill / "scripts" / "hi.sh").unlink(),
    "unlisted": lambda skill: skill.rename(skill.with_name("other")),
    "lock": lambda skill: (skill.parents[1] / "skills.lock").write_text("{}"),
}


def test_every_way_to_change_one_is_seen(place: Place, tmp_path: Path) -> None:
    place.ask("add", str(place.repository), "--yes")
    kept = place.folder.rename(tmp_path / "kept")
    for name, change in CHANGES.items():
        shutil.copytree(kept, place.folder)
        assert (place.used(), place.warnings()) == (["greet"], []), name
        change(place.folder / "skills.d" / "greet")
        assert place.used() == [], name
        assert len(place.warnings()) == (2 if name in ("unlisted", "lock") else 1), name
        shutil.rmtree(place.folder)


def test_what_is_new_at_the_source_is_shown_as_a_difference(place: Place) -> None:
    place.ask("add", str(place.repository), "--yes")
    place.commit({"greet/SKILL.md": DOCUMENT.format(name="greet") + "\x1b[2JAnd bow.\n", "greet/a.py": "print()\n"})
    assert place.used() == ["greet"]
    code, output = place.ask("update", "greet", "--yes")
    assert code == 0
    assert "+�[2JAnd bow." in output
    assert "a.py: a program from now on" in output
    assert "And bow." in (place.folder / "skills.d" / "greet" / "SKILL.md").read_text()
    assert place.pins()["greet"]["commit"] == git(place.repository, "rev-parse", "HEAD").strip()
    place.commit({"other/x.txt": "x"})
    git(place.repository, "rm", "-q", "-r", "greet")
    git(place.repository, "commit", "-q", "-m", "none")
    code, output = place.ask("update", "greet", "--yes")
    assert (code, place.used()) == (1, ["greet"])


def test_the_list_and_the_end_of_a_skill(place: Place) -> None:
    assert place.ask("list") == (0, "0 of 0 skills used\n")
    place.ask("add", str(place.repository), "--yes")
    code, output = place.ask("list", "--json")
    ((found),) = json.loads(output)
    assert (code, found["name"], found["state"], found["place"]) == (0, "greet", "ok", "greet")
    assert place.ask("list")[1].startswith("greet  ok  ")
    assert place.ask("remove", "other")[0] == 1
    assert place.ask("remove", "greet", answer="n\n")[0] == 1
    assert place.ask("remove", "greet", "--yes") == (0, "greet: removed\n")
    assert (place.used(), place.pins(), [*(place.folder / "skills.d").iterdir()]) == ([], {}, [])


def test_of_several_skills_those_are_added_that_are_named(place: Place) -> None:
    place.commit({f"{name}/SKILL.md": DOCUMENT.format(name=name) for name in ("bow", "weekly-report")})
    code, output = place.ask("add", str(place.repository), "--yes")
    assert (code, "bow, greet, weekly-report" in output) == (1, True)
    assert place.ask("add", str(place.repository), "nobody", "--yes")[0] == 1
    assert place.ask("add", str(place.repository), "bow", "--yes")[0] == 0
    code, output = place.ask("add", str(place.repository), "weekly-report", "--yes")
    assert "no agent" in output
    assert place.used() == ["bow", "weekly-report"]
    assert place.ask("add", str(place.repository), "--all", "--yes")[0] == 1  # two of them are there


def test_a_branch_a_tag_and_a_file_address(place: Place) -> None:
    git(place.repository, "checkout", "-q", "-b", "next")
    place.commit({"bow/SKILL.md": DOCUMENT.format(name="bow")})
    git(place.repository, "tag", "v1")
    git(place.repository, "checkout", "-q", "main")
    address = f"file://{place.repository}"
    assert place.ask("add", address, "bow", "--yes")[0] == 1
    assert place.ask("add", address, "bow", "--ref", "v1", "--yes")[0] == 0
    assert place.pins()["bow"]["ref"] == "v1"
    assert place.ask("update", "bow") == (0, "bow: unchanged\n")
    assert place.ask("add", address, "--ref", "--upload-pack=touch x", "--yes")[0] == 1
    assert place.ask("add", address, "--ref", "nowhere", "--yes")[0] == 1


def test_a_plain_folder_needs_no_git(place: Place) -> None:
    folder = place.folder / "mine"
    (folder / "bow").mkdir(parents=True)
    (folder / "bow" / "SKILL.md").write_text(DOCUMENT.format(name="bow"))
    assert place.ask("add", str(folder), "--yes", PATH="/nowhere")[0] == 0
    assert place.pins()["bow"]["commit"] == ""
    code, output = place.ask("add", str(place.repository), "--yes", PATH="/nowhere")
    assert (code, "git is not installed" in output) == (1, True)
    (folder / "bow" / "out.txt").symlink_to("/etc/passwd")
    code, output = place.ask("update", "bow", "--yes")
    assert (code, "it holds a link" in output) == (1, True)
    assert place.used() == ["bow"]


SOURCES = [
    *(
        "ext::sh -c touch% {witness}",
        "--upload-pack=touch {witness}",
        "-u{witness}",
        "ssh://-oProxyCommand=touch {witness}/x",
    ),
    *(
        "ssh://-oProxyCommand=touch${{IFS}}{witness}/x",
        "-oProxyCommand=x@host:y",
        "git://x.test/y",
        "fd::17/x",
        "https://",
    ),
    *("https://user:pw@x.test/y", "https://token@x.test/y", "transport::address", "", "nowhere/at/all", "a\nb"),
]


def test_an_address_is_no_option_and_no_command(place: Place) -> None:
    witness = place.folder / "witness"
    for source in SOURCES:
        code, output = place.ask("add", "--yes", "--", source.format(witness=witness))
        assert code == 1, (source, output)
        assert len(output.splitlines()) == 1, (source, output)
        assert "pw" not in output, source
        assert not witness.exists(), source
    assert place.used() == []


def test_a_repository_runs_nothing_and_leads_nowhere(place: Place, tmp_path: Path) -> None:
    witness, repository = tmp_path / "witness", place.repository
    touch = f"touch {witness}"
    (repository / "greet" / "passwd").symlink_to("/etc/passwd")
    (repository / "greet" / "up").symlink_to("../../..")
    place.commit(
        {"greet/.gitattributes": "* filter=evil\n", ".gitmodules": '[submodule "m"]\npath = greet/m\nurl = ext::sh\n'}
    )
    git(
        repository,
        "update-index",
        "--add",
        "--cacheinfo",
        f"160000,{git(repository, 'rev-parse', 'HEAD').strip()},greet/m",
    )
    git(repository, "commit", "-q", "-m", "m")
    for name in ("post-checkout", "post-merge", "reference-transaction", "pre-receive", "update"):
        hook = repository / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\n{touch}\n")
        hook.chmod(0o755)
    for key, value in {
        "core.fsmonitor": touch,
        "core.sshCommand": touch,
        "core.pager": touch,
        "core.hooksPath": str(hook.parent),
        "filter.evil.smudge": touch,
        "filter.evil.process": touch,
        "uploadpack.packObjectsHook": touch,
        "remote.origin.url": f"ext::{touch}",
        "remote.origin.uploadpack": touch,
        "alias.clone": f"!{touch}",
    }.items():
        git(repository, "config", key, value)
    code, output = place.ask("add", str(repository), "--yes")
    assert code == 0, output
    assert [f"left out, a link or a submodule: {it}" in output for it in ("m", "passwd", "up")] == [True] * 3
    folder = place.folder / "skills.d" / "greet"
    found = sorted(str(it.relative_to(folder)) for it in folder.rglob("*"))
    assert found == [".gitattributes", "SKILL.md", "scripts", "scripts/hi.sh"]
    assert not witness.exists()


def test_a_missing_object_is_fetched_from_nowhere(place: Place, tmp_path: Path) -> None:
    witness, repository = tmp_path / "witness", place.repository
    blob = git(repository, "rev-parse", "HEAD:greet/scripts/hi.sh").strip()
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for key, value in {
        "core.repositoryformatversion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": str(repository),
        "remote.origin.uploadpack": f"touch {witness}; git-upload-pack",
    }.items():
        git(repository, "config", key, value)
    code, _ = place.ask("add", str(repository), "--yes")
    assert (code, witness.exists(), place.used()) == (1, False, [])


def tree(repository: Path, *entries: tuple[str, str, str]) -> None:
    """A commit with a tree that no git would make: mode, name and content of each entry as they are given."""
    texts = {text for _, _, text in entries}
    blobs = {text: git(repository, "hash-object", "-w", "--stdin", given=text.encode()).strip() for text in texts}
    raw = b"".join(f"{mode} {name}".encode() + b"\0" + bytes.fromhex(blobs[text]) for mode, name, text in entries)
    made = git(repository, "hash-object", "-t", "tree", "-w", "--stdin", "--literally", given=raw).strip()
    commit = git(repository, "commit-tree", made, "-m", "odd").strip()
    git(repository, "update-ref", "refs/heads/main", commit)


GREET = ("100644", "SKILL.md", DOCUMENT.format(name="greet"))
ODD = {
    "up": [GREET, ("100644", "../../evil", "x")],
    "absolute": [GREET, ("100644", "/evil", "x")],
    "dots": [GREET, ("100644", "..", "x")],
    "git": [GREET, ("100644", ".GIT", "x")],
    "terminal": [GREET, ("100644", "a\x1b[2Jb", "x")],
    "backslash": [GREET, ("100644", "a\\b", "x")],
    "twice": [GREET, ("100644", "a", "x"), ("100644", "a", "y")],
    "many": [GREET, *(("100644", f"f{number}", "x") for number in range(FILES_MAX))],
    "linked": [("120000", "SKILL.md", "/etc/passwd")],
    "no yaml": [("100644", "SKILL.md", "---\nname: [\n---\n")],
    "nothing": [("100644", "README.md", "x")],
    "huge": [GREET, ("100644", "big", "x" * (8 * 1024 * 1024))],
}


def test_a_tree_that_no_git_would_make_is_one_sentence(place: Place) -> None:
    for name, entries in ODD.items():
        tree(place.repository, *entries)
        code, output = place.ask("add", str(place.repository), "--yes")
        assert (code, place.used()) == (1, []), name
        assert len(output.splitlines()) == 1, (name, output)
        assert "\x1b" not in output, name
        assert [it.name for it in place.folder.iterdir()] in (["config.yaml"], ["skills.d", "config.yaml"]), name


def test_a_tree_that_holds_itself_many_times_over_ends(place: Place) -> None:
    repository = place.repository
    blob = git(repository, "hash-object", "-w", "--stdin", given=b"x").strip()
    made = git(repository, "mktree", given="".join(f"100644 blob {blob}\tf{n}\n" for n in range(10)).encode()).strip()
    for _ in range(9):
        made = git(
            repository, "mktree", given="".join(f"040000 tree {made}\td{n}\n" for n in range(10)).encode()
        ).strip()
    commit = git(repository, "commit-tree", made, "-m", "bomb").strip()
    git(repository, "update-ref", "refs/heads/main", commit)
    code, output = place.ask("add", str(repository), "--yes")
    assert code == 1
    assert "the repository is larger than" in output


def test_two_of_a_name_and_one_that_ships_are_said(place: Place) -> None:
    place.commit({"a/SKILL.md": DOCUMENT.format(name="translate")})
    code, output = place.ask("add", str(place.repository), "translate", answer="n\n")
    assert (code, "takes the place of the skill translate" in output) == (1, True)


def test_the_lock_can_be_read_by_another_and_a_stamp_alone_decides_nothing(place: Place) -> None:
    place.ask("add", str(place.repository), "--yes")
    lock = SkillLock(place.folder / "skills.d")
    assert lock.refusals(["greet"]) == {}
    document = place.folder / "skills.d" / "greet" / "SKILL.md"
    status = document.stat()
    document.write_text(document.read_text().replace("hello", "hallo"))
    os.utime(document, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert lock.refusals(["greet"]) == {"greet": "changed"}


def test_every_skills_command_has_help(place: Place) -> None:
    for word in ("add", "update", "list", "remove"):
        assert place.ask(word, "--help")[0] == 0
