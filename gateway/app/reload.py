"""Reloads the config while the gateway serves: when its file, or a file that it names, has changed, or on SIGHUP.

A valid one is swapped in between two steps of the event loop; an invalid one changes nothing, and says where it
is wrong, in the log, at `/readyz` and in the metrics. Files are looked at, not watched: a mounted one, a link that is
swapped and an editor's renaming look the same that way, and a look costs microseconds.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from gateway.app.gateway import Gateway
from gateway.app.setup import changes, loaded_over, restart_keys, version_of
from gateway.approvals.display import value
from gateway.approvals.notices import Notice
from gateway.config.load import ConfigFile, Loaded, load
from gateway.config.problems import ConfigErrors, Problem
from gateway.config.root import Config
from gateway.config.serving import ServingFile
from gateway.observe.logs import logged
from gateway.state.runtime import ConfigState
from tools.catalog import own_tools

LOOK_SECONDS = 0.4
"""Seconds between two looks; a change is read when two of them have seen the same."""

log = structlog.get_logger()

_Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(eq=False)
class Reload:
    """`applied` is called with a config before it holds: for the log, which must know its secrets."""

    gateway: Gateway
    path: Path
    environment: Mapping[str, str]
    loaded: Loaded
    """The config and its files as the gateway started."""
    applied: Callable[[Config], None]
    record: ServingFile | None = None

    def __post_init__(self) -> None:
        self.gateway.runtime.config_file = ConfigFile(path=self.path, environment=self.environment)
        self._files = self.loaded.files
        self._requested = asyncio.Event()
        self._tools = own_tools(self.loaded.config.tools).digest
        """The operator's tools that are in force."""
        self._loaded = self._stamp()
        """Taken before anything starts: an edit during the start is an edit, too."""

    def request(self) -> None:
        """Read it now, changed or not."""
        self._requested.set()

    async def run(self) -> None:
        read = seen = self._loaded
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._requested.wait()
            with logged("config_not_looked_at"):
                before, seen = seen, self._stamp()
                if self._requested.is_set() or (seen == before and seen != read):
                    self._requested.clear()
                    await self._read()
                    read = seen

    async def _read(self) -> None:
        state = self.gateway.runtime.config_state
        try:
            loaded = await asyncio.to_thread(load, self.path, self.environment)
            self._files = loaded.files
            await self._swap(loaded)
            problems: tuple[Problem, ...] = ()
        except ConfigErrors as errors:
            problems = errors.problems
            log.error("config_refused", problem=str(problems[0]), problems=len(problems), in_force=state.version)
        except OSError as failure:
            problems = self._problem(f"{failure.filename}: {failure.strerror}")
            log.error("config_refused", problem=str(problems[0]), in_force=state.version)
        except Exception as failure:  # the watcher's edge: the next edit must be seen even if this one failed
            problems = self._problem(f"it could not be put in force ({type(failure).__name__}); the log has the place")
            log.error("config_not_applied", exc_info=failure, in_force=state.version)
        state = replace(self.gateway.runtime.config_state, problems=problems)
        self.gateway.report(state)
        if state.error is not None:
            await self.gateway.tell_owners(self._refusal(state.error))

    def _problem(self, message: str) -> tuple[Problem, ...]:
        """A problem of the file as a whole."""
        return (Problem(str(self.path), 1, 1, "", message),)

    def _refusal(self, error: str) -> Notice:
        where = value(error.replace(str(self.path), self.path.name))
        return Notice(
            cause="config",
            en=f"An edit of the config was refused, and the one before still holds: {where}",
            zh=f"配置修改未被接受，仍使用之前的配置：{where}",
        )

    async def _swap(self, loaded: Loaded) -> None:
        running = self.gateway.config
        config = loaded_over(loaded.config, running)
        if reason := config.server.exposure:
            raise ConfigErrors((Problem(str(self.path), 1, 1, "", reason.message, reason.fix),))
        restart = restart_keys(loaded.config, self.loaded.config)
        state = ConfigState(version=version_of(config), restart=restart)
        if restart:
            log.warning("config_wants_restart", keys=restart)
        was_refused = self.gateway.runtime.config_state.error is not None
        differing, tools = changes(config, running), own_tools(config.tools)
        if tools.digest != self._tools and "tools" not in differing:
            differing.append("tools.directories")
        if differing:
            self.applied(config)
            await self.gateway.apply(config, loaded.environment, state)
            self._tools = tools.digest
            for fault in tools.faults:
                log.warning("tool_refused", problem=str(fault))
        else:
            self.gateway.runtime.config_state = state
        if self.record is not None:
            self.record.update(loaded.source, state.version)
        if differing or was_refused:
            log.info("config_reloaded", changed=differing, version=state.version)

    def _stamp(self) -> _Stamp:
        return tuple(_stamps([self.path, *sorted(self._files)]))


def _stamps(files: Iterable[Path]) -> Iterable[tuple[int, int, int] | None]:
    for file in files:
        try:
            status = file.stat()
            yield status.st_mtime_ns, status.st_size, status.st_ino
        except OSError:
            yield None
