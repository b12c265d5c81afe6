"""Every table says whether it holds data of people, and how these are deleted and handed out."""

from pathlib import Path

from sqlalchemy import create_engine, inspect

from gateway.config.root import DatabaseConfig
from gateway.store import erasure
from gateway.store.holdings import HOLDINGS, OTHERS
from gateway.store.opening import connected
from tests.empty_database import open_store


async def opened(folder: Path) -> DatabaseConfig:
    config = DatabaseConfig(url=f"sqlite:///{folder}/clawgate.db")
    await open_store(config).close()
    return config


async def test_holdings_name_every_table_of_the_schema(tmp_path: Path) -> None:
    """A new table goes into `HOLDINGS`, or into `OTHERS` with the reason why it is no person's."""
    engine = create_engine((await opened(tmp_path)).url)
    tables = set(inspect(engine).get_table_names())
    engine.dispose()
    assert tables == HOLDINGS.keys() | OTHERS.keys()
    assert not HOLDINGS.keys() & OTHERS.keys()


async def test_holdings_by_turn_have_a_turn_and_titles_are_bilingual(tmp_path: Path) -> None:
    engine = create_engine((await opened(tmp_path)).url)
    for name, holding in HOLDINGS.items():
        columns = {it["name"] for it in inspect(engine).get_columns(name)}
        assert not holding.by_turn or "turn" in columns or ":answers" in holding.by_turn, name
        assert bool(holding.aged) == bool(holding.places), name
        assert all((holding.title.en, holding.title.zh)), name
    engine.dispose()


async def test_holdings_of_an_empty_database_are_empty(tmp_path: Path, database_url: str) -> None:
    config = DatabaseConfig(url=database_url)
    store = open_store(config)
    try:
        held = await store.people.held("feishu", "ou_nobody")
    finally:
        await store.close()
    assert (held.conversations, held.tables) == ([], {})
    with connected(config) as connection:
        assert +erasure.forget_person(connection, "feishu", "ou_nobody") == {}
