"""Which store stands behind a `database.url`."""

from pathlib import Path

from gateway.config.root import DatabaseConfig
from gateway.store.store import Store


def open_store(config: DatabaseConfig) -> Store:
    """The store, its tables brought up to date. Raises DatabaseUnusable with what to do."""
    if config.path is not None:
        from gateway.store.sqlite import SqliteStore

        return SqliteStore(Path(config.path))
    from gateway.store.postgres import PostgresStore

    return PostgresStore(config.url, lease_seconds=config.lease_seconds, connections=config.connections)
