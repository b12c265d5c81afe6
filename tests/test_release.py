"""What is released: the checks of `make release`, and the workflows that publish, as far as they can be run or read here."""

import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.program import VERSION
from tests.release import NotReleasable, build, disagreements, install, try_out
from tests.stories.process.test_process import ROOT
from tests.upstream import git

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PAGES = sorted([*ROOT.glob("README*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("channels/*/README.md")])


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "environment"], check=True)
    return tmp_path / "environment"


@pytest.mark.slow
async def test_release_has_sound_metadata_and_upgrades_a_database(tmp_path: Path, environment: Path) -> None:
    wheel, sdist = build(tmp_path / "dist")
    check = [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)]
    assert subprocess.run(check, capture_output=True, check=False).returncode == 0
    with tarfile.open(sdist) as archive:
        tops = {Path(it.name).parts[1] for it in archive if len(Path(it.name).parts) > 1}
    code = {"gateway", "agents", "tools", "skills", "channels", "docs"}
    about = {"README.md", "README.zh-CN.md", "CHANGELOG.md", "LICENSE"}
    assert tops == code | about | {"pyproject.toml", "requirements.txt", "PKG-INFO", ".gitignore"}
    install(wheel, environment, linked=True)
    await try_out(environment, tmp_path)


@pytest.mark.slow
async def test_a_wheel_that_does_not_start_is_not_releasable(tmp_path: Path, environment: Path) -> None:
    (environment / "bin" / "clawgate").write_text(f"#!{sys.executable}\nprint('9.9.9')\n")
    (environment / "bin" / "clawgate").chmod(0o755)
    with pytest.raises(NotReleasable, match=re.escape(f"says 9.9.9, and not {VERSION}")):
        await try_out(environment, tmp_path)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_release_needs_a_clean_tree_and_matching_tag(tmp_path: Path) -> None:
    def wrong(changelog: str, *tags: str, version: str = "1.1.0") -> list[str]:
        for tag in git(tmp_path, "tag").split():
            git(tmp_path, "tag", "--delete", tag)
        (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\nFor operators.\n\n{changelog}", encoding="utf-8")
        git(tmp_path, "add", "--all")
        git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "a version")
        for tag in tags:
            git(tmp_path, "tag", tag)
        return [*disagreements(tmp_path, version)]

    git(tmp_path, "init", "--quiet")
    good = "## 1.1.0 — 2026-12-01\n\n* Added: this.\n\n## 1.0.0 — 2026-11-26\n\n* Added: that.\n"
    assert wrong(good, "v1.1.0") == []
    assert wrong(f"## Unreleased\n\n{good}", "v1.1.0") == []
    (tmp_path / "new.py").touch()
    (dirty,) = disagreements(tmp_path, "1.1.0")
    assert "new.py" in dirty
    (untagged,) = wrong(good)
    assert "needs the tag v1.1.0; it has none" in untagged
    (other,) = wrong(good, "v1.0.9", "1.1.0")
    assert "it has 1.1.0, v1.0.9" in other
    (unreleased,) = wrong(f"## Unreleased\n\n* Fixed: one more.\n\n{good}", "v1.1.0")
    assert "move them under ## 1.1.0" in unreleased
    assert any("newest section is 1.1.0" in it for it in wrong(good, "v1.2.0", version="1.2.0"))
    assert any("expected 1.1.0 — YYYY-MM-DD" in it for it in wrong(good.replace(" — 2026-12-01", ""), "v1.1.0"))


def workflow(path: Path) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    return dict(yaml.safe_load(re.sub(r"^on:", "'on':", text, flags=re.M)))  # YAML 1.1 takes it for true


def steps(path: Path) -> Iterator[dict[str, Any]]:
    yield from (step for job in workflow(path)["jobs"].values() for step in job["steps"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_pins_what_it_uses_and_runs_what_there_is(path: Path) -> None:
    pinned = re.findall(r"^ *(?:- )?uses: (\S+)( # v\d+\.\d+\.\d+)?$", path.read_text(encoding="utf-8"), re.M)
    assert len(pinned) == sum("uses" in it for it in steps(path)) > 0
    assert [it for it, version in pinned if not version or not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", it)] == []
    scripts = [it["run"] for it in steps(path) if "run" in it]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    for script in scripts:
        assert "${{" not in script, "what others wrote is never pasted into a script"
        assert subprocess.run(["bash", "-n", "-c", script], check=False).returncode == 0
        assert {*re.findall(r"\bmake ([a-z-]+)", script)} <= {*targets}
        for name in re.findall(r"^\.\S+", script, re.M):
            assert (ROOT / name).is_file()
        assert (ROOT / "Dockerfile").is_file() or "docker build" not in script


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_read_and_a_job_may_do_besides_what_it_is_for(path: Path) -> None:
    found = workflow(path)
    assert found["permissions"] == {"contents": "read"}
    jobs = {name: job["permissions"] for name, job in found["jobs"].items() if "permissions" in job}
    wanted = {"wheel": {"id-token": "write"}, "image": {"contents": "read", "packages": "write"}}
    assert jobs == (wanted if path.stem == "release" else {})
    assert {*re.findall(r"secrets\.(\w+)", path.read_text(encoding="utf-8"))} <= {"GITHUB_TOKEN"}
    assert "pull_request_target" not in found["on"]


def test_release_is_published_only_tried_and_tagged() -> None:
    release = workflow(ROOT / ".github" / "workflows" / "release.yml")
    assert release["on"] == {"push": {"tags": ["v*"]}}
    jobs = release["jobs"]
    assert {name: job.get("needs") for name, job in jobs.items()} == {"build": None, "wheel": "build", "image": "build"}
    assert [it["run"] for it in jobs["build"]["steps"] if "run" in it] == [".ci/run", "make release"]
    artifacts = [
        it["with"]["name"] for it in (*jobs["build"]["steps"], *jobs["wheel"]["steps"]) if "-artifact@" in str(it)
    ]
    assert artifacts == ["dist", "dist"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_installs_from_a_clone_as_long_as_no_index_has_it(page: Path) -> None:
    """The first release takes this test away, and writes the shorter command."""
    named = re.findall(r"\b(?:uv tool|pipx|pip) install ([^\n`#]*)", page.read_text(encoding="utf-8"))
    assert [it for it in named if re.search(r"(?:^|\s)clawgate(?:\[\w+\])?(?:\s|$)", it)] == []
