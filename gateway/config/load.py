"""Load a config file: parse YAML, expand references, validate, and return either a config or all problems at once.

Loading is stateless: the same file and environment give the same config. `gateway.app.serve` watches the file for changes.

`${NAME}`, `${NAME:-default}` and `${file:path}` are expanded once, in values only. `$${` is a literal `${`, and
`${person:…}` is filled in for each call of an MCP server. An unquoted value gets its type after the expansion (in `yaml`),
so that `port: ${PORT:-8080}` is a number. Its text is kept for string fields, so that a secret of digits stays a string.
`.env` next to the config extends the environment; the last of duplicate names wins, as in docker compose. Secrets from the
operator are appended, and existing lines are never changed.
"""

import errno
import io
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from channels.bilingual import Bilingual, Finding
from gateway.config.checks import check
from gateway.config.folders import check_folders, check_tool_folders, with_absolute_paths
from gateway.config.keys import Resolved, resolve_models
from gateway.config.problems import ConfigErrors, Findings, Key, Position, Problem, shown
from gateway.config.reader import not_a_mapping, read
from gateway.config.root import Config
from gateway.config.warnings import warnings
from gateway.config.yaml import BYTES_MAX, Document, parse
from gateway.observe.secrets import redacted
from skills.catalog import Skill, SkillCatalog, visible
from tools.catalog import offered, own_tools
from tools.encoding import UTF_8, encoding_of, is_valid

FILE_BYTES_MAX = 65_536
PRIVATE = Bilingual("chmod 600 it", "请执行 chmod 600")

_REFERENCE = re.compile(
    r"\$\$\{"
    r"|\$\{file:(?P<file>[^}]*)\}"
    r"|\$\{person:(?P<person>[^}]*)\}"
    r"|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-[^}]*)?\}"
    r"|(?P<odd>\$\{)"
)

_REQUIRED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_STAND_INS = {
    "TELEGRAM_BOT_TOKEN": f"1:{'x' * 35}",
    "DATABASE_URL": "postgresql://nobody@localhost/none",
    "CLAWGATE_PUBLIC_URL": "https://bot.example.com",
}
SHIPPED_SKILLS = Path(__file__).resolve().parents[2] / "skills"
DOTENV = ".env"
SECRET = re.compile(r"[\x21-\x26\x28-\x5b\x5d-\x7e]{1,1000}")
"""A value that is literal in single quotes: ASCII without blanks, single quotes and backslashes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigFile:
    """The source of a config, also for reloads."""

    path: Path
    environment: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded(Resolved):
    """A loaded config. By agent, `skills` are the visible skills and `hidden_skills` those with unmet requirements."""

    warnings: tuple[Finding, ...]
    skills: Mapping[str, tuple[Skill, ...]]
    hidden_skills: Mapping[str, tuple[Skill, ...]]
    files: frozenset[Path]
    """The files besides the config file that it depends on, existing or not."""
    environment: Mapping[str, str] = field(repr=False)
    """The environment, extended by `.env`."""
    source: bytes = field(repr=False)
    """The file's bytes."""

    def listening(self, host: str, port: int) -> "Loaded":
        """Return a copy with the actual listen address, since the command line may override it and port 0 takes a free
        one."""
        return replace(self, config=self.config.but(server=self.config.server.but(host=host, port=port)))


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigReading:
    """The valid part of a config, None if the file cannot be parsed, and the problems of the rest."""

    loaded: Loaded | None
    problems: tuple[Problem, ...] = ()


def load(path: Path, env: Mapping[str, str], *, root: type[Config] = Config) -> Loaded:
    """Load the config in `path`, with `env` taking precedence over the folder's `.env`. Raise ConfigErrors with all
    problems. `root` may be a Config with other channels."""
    reading = read_config(path, env, root=root)
    if reading.loaded is None or reading.problems:
        raise ConfigErrors(reading.problems)
    return reading.loaded


def read_config(
    path: Path, env: Mapping[str, str], *, source: bytes | None = None, root: type[Config] = Config
) -> ConfigReading:
    """Read the config like `load`, but keep the valid part if there are problems. `source` replaces the file's content,
    without warnings, as the file may be gone."""
    findings = Findings(str(path))
    folder = path.parent.resolve()  # of the link, if the file is one: mounted configs often are
    home = env.get("HOME", "")
    env = over_file(folder / DOTENV, env)
    expansion = Expansion(folder, env, findings)
    expansion.note(folder / DOTENV)
    content = _content(path, findings) if source is None else source
    document = None if content is None else _parsed(content, findings, expansion)
    if content is None or document is None:
        return ConfigReading(loaded=None, problems=_problems(findings, folder))
    config = with_absolute_paths(read(root, document, findings), folder, home)
    chosen = resolve_models(config, expansion.names, env, findings)
    config = chosen.config
    config = check_tool_folders(config, findings)  # before anything reads what is in them
    tools = {it.id: offered(config.tools, it.tools, off=config.tools_off) for it in config.agents.list}
    agents = {agent.id: (Path(agent.workspace_dir), agent.skills) for agent in config.agents.list}
    catalog = skill_catalog(config, env)
    check(config, {name: catalog.names(workspace) for name, (workspace, _) in agents.items()}, findings)
    check_folders(config, path, home, findings)
    is_sound = not findings.problems
    warned = warnings(chosen, path, findings, expansion.warnings) if is_sound and source is None else ()
    loaded = Loaded(
        config=config,
        warnings=tuple(it.cleaned(redacted) for it in warned),
        skills={
            name: visible(catalog.scan(workspace), config, tools[name]) for name, (workspace, config) in agents.items()
        },
        hidden_skills={
            name: visible(catalog.hidden(workspace), config) for name, (workspace, config) in agents.items()
        },
        files=frozenset(expansion.files) | own_tools(config.tools).files,
        environment=env,
        source=content,
        names=chosen.names,
        auto=chosen.auto,
        variables=chosen.variables,
    )
    return ConfigReading(loaded=loaded, problems=() if is_sound else _problems(findings, folder))


def _problems(findings: Findings, folder: Path) -> tuple[Problem, ...]:
    # An unreadable line of `.env` may be why a variable is not set.
    for message, fix in faults(folder / DOTENV):
        findings.at(Position(1, 1), (), f"{message} — {fix}")
    return findings.problems


def skill_catalog(config: Config, env: Mapping[str, str]) -> SkillCatalog:
    """Return the catalog of shipped skills, added skills and `skills.directories`. Required programs are looked up in
    `env`'s PATH."""
    added = Path(config.skills.added_dir)
    roots = [SHIPPED_SKILLS, added, *map(Path, config.skills.directories)]
    which = partial(shutil.which, path=env.get("PATH"))
    return SkillCatalog(roots=roots, env=env, which=which, platform=sys.platform, added=added)


def _content(path: Path, findings: Findings) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a file name"
        findings.at(Position(1, 1), (), f"cannot be read: {reason} — name another with --config")
        return None


def _parsed(source: bytes, findings: Findings, expansion: "Expansion") -> Document | None:
    document = parse(source, findings, expansion.fill)
    if document is None:
        return None
    names = {key: names for key, names in expansion.names.items() if any(map(expansion.env.get, names))}
    findings.locate(document.marks, names)
    if document.data is None and not findings.problems:
        return replace(document, data={})
    if not isinstance(document.data, dict):
        findings.add((), not_a_mapping(document.data, "expected keys and values, such as agents:"))
        return None
    return document


def required(text: str) -> list[str]:
    """List the variables without a default that a config refers to, in file order."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return [*dict.fromkeys(_REQUIRED.findall("\n".join(lines)))]


def stand_in(name: str) -> str:
    """Return a placeholder value for an unset variable, so that the rest of a config can be validated."""
    return _STAND_INS.get(name, f"{name}{'x' * 40}")


class Expansion:
    """Expands the references of one file; paths are relative to `folder`. `names` maps keys to the variables in their
    values; `warnings` have their fixes."""

    def __init__(self, folder: Path, env: Mapping[str, str], findings: Findings) -> None:
        self.names: dict[Key, tuple[str, ...]] = {}
        self.warnings: list[tuple[Key, Bilingual, Bilingual]] = []
        self.files: set[Path] = set()
        """The files that values come from, existing or not."""
        self._folder = folder
        self.env = env
        self._findings = findings

    def note(self, path: Path) -> None:
        """Register a dotenv file, and warn if parts of it are unreadable or its permissions are too open."""
        self.files.add(path)
        self.warnings += [((), *fault) for fault in faults(path)]
        if path.is_file() and path.stat().st_mode & 0o077:
            message = Bilingual(f"{path.name} can be read by others", f"{path.name} 可被他人读取")
            self.warnings.append(((), message, PRIVATE))

    def fill(self, value: str, key: Key) -> str:
        """Expand the references in a value. Raise ValueError with the reason and the fix."""
        self.names[key] = tuple(match["name"] for match in _REFERENCE.finditer(value) if match["name"])
        return _REFERENCE.sub(lambda match: self._value_of(match, key), value)

    def _value_of(self, match: re.Match[str], key: Key) -> str:
        if match["odd"]:
            raise ValueError("expected ${NAME}, ${NAME:-default} or ${file:path} — write $${ for a literal ${")
        if match["file"] is not None:
            return self._content(match["file"], key)
        if match["person"] is not None:
            return _person(match["person"], key)
        if match["name"] is None:
            return "${"
        name, default = match["name"], match["default"]
        if default is not None and "${" in default:
            raise ValueError("a default is taken literally and cannot hold another ${…}")
        value = self.env.get(name, "")
        if value:
            self._findings.hide(value)
            return _usable(value, f"the value of {name}")
        if default is not None:
            return str(default[2:])
        state = "is set but empty" if name in self.env else "is not set"
        raise ValueError(f"{name} {state} in the environment — set it, or write ${{{name}:-}} if it may be empty")

    def _content(self, name: str, key: Key) -> str:
        what = f"the file {name}"
        if not name.strip():
            raise ValueError("${file:path} lacks its path")
        self.files.add(self._folder / name)
        content, mode = _read(self._folder / name, what)
        if mode & 0o077:
            message = Bilingual(
                f"{shown(key)}: the file {name} can be read by others", f"{shown(key)}：文件 {name} 可被他人读取"
            )
            self.warnings.append((key, message, PRIVATE))
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise ValueError(f"{what} is not UTF-8 text") from None
        text = text.removesuffix("\n").removesuffix("\r")
        if not text.strip():
            raise ValueError(f"{what} is empty")
        self._findings.hide(text)
        return _usable(text, what)


def _person(written: str, key: Key) -> str:
    """Return the stand-in for the token of the person whom a turn serves (`tools.mcp.config.PERSON`)."""
    platform, _, account = written.partition(":")
    if key[:2] != ("mcp", "servers") or key[3:4] not in (("headers",), ("env",)):
        what = "${person:…} is the token of the person who asks"
        raise ValueError(f"{what} — write it only in headers or env of a server in mcp.servers")
    if platform != "feishu" or written.endswith(":"):
        raise ValueError("expected ${person:feishu} or ${person:feishu:ACCOUNT}")
    return f"\0person:{account or 'default'}\0"


def _read(path: Path, what: str) -> tuple[bytes, int]:
    try:
        # O_NONBLOCK: a pipe must not block the start
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            mode = os.fstat(descriptor).st_mode
            content = file.read(FILE_BYTES_MAX + 1) if stat.S_ISREG(mode) else b""
    except (OSError, ValueError) as error:
        if path.is_symlink():
            raise ValueError(f"{what} is a symbolic link — name the file itself") from None
        reason = error.strerror if isinstance(error, OSError) else "not a file name"
        raise ValueError(f"{what} cannot be read: {reason}") from None
    if not stat.S_ISREG(mode):
        raise ValueError(f"{what} is not a regular file")
    if len(content) > FILE_BYTES_MAX:
        raise ValueError(f"{what} is larger than 64 KiB")
    return content, mode


def _usable(text: str, what: str) -> str:
    if re.search("[\0\ud800-\udfff]", text):
        raise ValueError(f"{what} holds a zero byte or half a character")
    return text


def over_file(path: Path, env: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment, extended by a dotenv file. An unreadable file is ignored, and `faults` reports why. An empty
    variable, which docker compose passes for an unset one, does not override the file's value."""
    if not path.is_file():
        return env
    from dotenv import dotenv_values

    try:
        text = path.read_bytes().decode().removeprefix("\ufeff")
    except (OSError, UnicodeDecodeError):
        return env
    written = dotenv_values(stream=io.StringIO(text), interpolate=False)
    named = {name: value for name, value in written.items() if value is not None}
    return {**named, **{name: value for name, value in env.items() if value or not named.get(name)}}


def faults(path: Path) -> Iterator[tuple[Bilingual, Bilingual]]:
    """Yield why the dotenv file, or a line of it, is ignored, each with the fix and without values."""
    if not path.is_file():
        return
    from dotenv.parser import parse_stream

    name = path.name
    try:
        data = path.read_bytes()
    except OSError as error:
        fix = Bilingual("let the user that runs this read it", "请让运行本程序的用户可以读取它")
        unread = Bilingual(
            f"{name} cannot be read ({error.strerror}), so it sets nothing",
            f"{name} 无法读取（{error.strerror}），因此其中的设置无效",
        )
        yield unread, fix
        return
    if not is_valid(data):
        encoding = encoding_of(data, nuls=True)
        guess = encoding.title if encoding not in (None, UTF_8) and encoding else ""
        message = Bilingual(
            f"{name} is not UTF-8{f' but {guess}' if guess else ''}, so nothing of it is read",
            f"{name} 不是 UTF-8{f'，而是 {guess}' if guess else ''}，因此其中的设置全部无效",
        )
        yield message, Bilingual("save it in the encoding UTF-8", "请以 UTF-8 编码保存")
        return
    for line in parse_stream(io.StringIO(data.decode().removeprefix("\ufeff"))):
        if line.error:
            at = line.original.line
            message = Bilingual(
                f"{name}: line {at} is not NAME=value, so it is passed over",
                f"{name}：第 {at} 行不是 NAME=value，已略过",
            )
            yield message, Bilingual("correct it, or put # before it", "请改正，或在行首加 #")


def append(path: Path, values: Mapping[str, str]) -> None:
    """Append values to a dotenv file, all or none, and make it private. Raise OSError, also if the file is not UTF-8, or
    ValueError for a value that cannot be written."""
    if not all(SECRET.fullmatch(value) for value in values.values()):
        raise ValueError("a value cannot be written")
    lines = "".join(f"{name}='{value}'\n" for name, value in values.items()).encode()
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        if not is_valid(b"".join(iter(lambda: os.read(file, 65_536), b""))):
            raise OSError(errno.EILSEQ, "it is not UTF-8, so what is written there would not be read; save it as UTF-8")
        os.fchmod(file, 0o600)
        size = os.fstat(file).st_size
        begun = size and os.pread(file, 1, size - 1) != b"\n"
        data = b"\n" * bool(begun) + lines
        try:
            if os.write(file, data) < len(data):
                raise OSError(28, os.strerror(28))
            os.fsync(file)
        except OSError:
            os.ftruncate(file, size)
            raise
    finally:
        os.close(file)
