"""A repository that others clone and pull from: the files of this one, without tests and pictures."""

import os
import subprocess
from pathlib import Path

from gateway.program import PACKAGES

ROOT = Path(__file__).resolve().parents[1]
TAKEN = (
    *PACKAGES,
    "docs",
    "tests/installer.py",
    "config.yaml",
    "Makefile",
    "pyproject.toml",
    ".gitignore",
    "README.md",
)
ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    **{f"GIT_{who}_{what}": "someone@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


def git(folder: Path, *words: str) -> str:
    """Run git there and return what it printed. Raises CalledProcessError with its complaint as a note."""
    env = {**os.environ, **ENVIRONMENT}
    try:
        done = subprocess.run(["git", *words], cwd=folder, env=env, capture_output=True, text=True, check=True)
    except subprocess.CalledProcessError as error:
        error.add_note(error.stderr)
        raise
    return done.stdout


class Upstream:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        git(folder, "init", "--quiet")
        names = [*git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard", *TAKEN).splitlines()]
        names += [it.name for it in ROOT.glob("requirements*.txt")]
        for name in (it for it in names if not it.startswith("docs/images/") and "/samples/" not in it):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
        self.commit()

    def commit(self) -> None:
        git(self.folder, "add", "--all")
        git(self.folder, "commit", "--quiet", "--message", "a version")

    def change_config(self) -> None:
        """Release a version whose config and template have another line where people write theirs."""
        for name in ("config.yaml", "gateway/cli/config.template.yaml"):
            path = self.folder / name
            text = path.read_text(encoding="utf-8")
            changed = text.replace("# owners: [", "# More about owners: docs/access.md\n# owners: [").replace(
                "port: ${", "port:  ${"
            )
            assert changed != text
            path.write_text(changed, encoding="utf-8")
        self.commit()
