"""What tests of every folder share: one PostgreSQL server a process, and a new database of either kind."""

import gc
import os
import ssl
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import certifi
import pytest
import structlog
from hypothesis import HealthCheck, settings

from gateway.store import sqlite
from tests import warm
from tests.postgres import PostgresServer, postgres_server

UNTIMED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
"""Nothing is timed in a test: a busy machine is no mistake."""
settings.register_profile("short", max_examples=25, **UNTIMED)
settings.register_profile("long", max_examples=200, **UNTIMED)  # `make test-all`
settings.load_profile("short")
structlog.configure(  # with the locals of every frame, one logged exception took a minute, and the loop with it
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and "postgres" in item.fixturenames:
            item.add_marker(pytest.mark.slow)


gc.disable()


def pytest_collection_finish() -> None:
    """Half a million objects are the tests themselves: no garbage collection walks them, now or later."""
    gc.freeze()
    gc.set_threshold(200_000, 10, 10)
    gc.enable()


os.environ["TZ"] = "UTC"  # times that a test reads are the same on every developer's machine
time.tzset()


@pytest.fixture(scope="session", autouse=True)
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing leaves loopback, so no client needs every authority of the web: reading them takes each one 20 ms."""
    end = "-----END CERTIFICATE-----\n"
    bundle = tmp_path_factory.mktemp("authorities") / "one.pem"
    bundle.write_text(Path(certifi.where()).read_text(encoding="utf-8").partition(end)[0] + end, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certifi, "where", lambda: str(bundle))
        patch.setattr(ssl, "create_default_context", cache(ssl.create_default_context))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """A kill loses nothing by that, and no machine falls here. What starts as a process is as careful as ever."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "PRAGMAS", (*sqlite.PRAGMAS, "synchronous=OFF"))
        yield


@pytest.fixture(scope="session", autouse=True)
def warm_parent() -> Iterator[None]:
    """It starts with the first test that wants a process."""
    yield
    warm.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        server.hurry()
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """The `database.url` of an empty database there. It has its tables: making them takes longer than most tests."""
    with postgres.database() as address:
        yield address


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The `database.url` of a new database, once for each engine."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/data/clawgate.db"
        return
    yield request.getfixturevalue("postgres_url")
