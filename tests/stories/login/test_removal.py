"""What ends a login for good, and what an operator sees of logins."""

import sqlite3
import tarfile
from pathlib import Path

import pytest

from gateway.config.load import load
from gateway.operate import contacts
from gateway.operate.backup import back_up
from gateway.operate.sessions import erase
from gateway.operate.status import logins as findings
from gateway.state.seal import VARIABLE
from tests.running import ALICE, FEISHU, SECRETS
from tests.stories.login.test_login import acting, cards, texts
from tests.stories.login.test_whose import keep_login
from tests.waiting import until

PAIRING = f"{FEISHU}    timestampWindowSeconds: null\n".replace("dmPolicy: open", "dmPolicy: pairing")


@pytest.mark.parametrize("way", ["erase", "revoke"])
async def test_login_is_deleted_by_erasure_and_revocation(tmp_path: Path, way: str) -> None:
    async with acting(tmp_path, feishu=PAIRING) as house:
        config = house.gateway.config
        await house.say("let me in")
        await until(lambda: len(house.feishu.messages) == 1)
        contacts.approve(config, f"feishu:{ALICE}")
        await house.say("/login")
        await until(lambda: len(cards(house)) == 1)
        await keep_login(house)
        await house.idle()
        if way == "revoke":
            contacts.revoke(config, f"feishu:{ALICE}")
        else:
            removed = erase(config, person=("feishu", ALICE)).removed
            assert (removed["login"], removed["later"]) == (1, 1)
        store = house.gateway.runtime.store
        assert await store.logins.get("feishu", "default", ALICE) is None
        assert not [it for it in await store.later.every() if it.owner]


async def test_backup_has_the_names_of_logins_and_no_token(tmp_path: Path) -> None:
    async with acting(tmp_path) as house:
        await keep_login(house)
        sealed = await house.gateway.runtime.store.logins.get("feishu", "default", ALICE)
        assert sealed is not None
        file = tmp_path / "config.yaml"
        done = back_up(load(file, SECRETS), file, tmp_path / "backup.tar.gz", SECRETS)
        with tarfile.open(done.file) as packed:
            names = [Path(it.name).name for it in packed.getmembers()]
            member = next(it for it in packed.getmembers() if it.name.endswith("clawgate.db"))
            content = packed.extractfile(member)
            assert content is not None
            copy = tmp_path / "copy.db"
            copy.write_bytes(content.read())
    assert "secret.key" not in names
    assert str(sealed.access).encode() not in copy.read_bytes()
    with sqlite3.connect(copy) as connection:
        assert connection.execute("SELECT name, access, refresh FROM login").fetchall() == [("Alice", None, None)]


async def test_doctor_reports_logins_and_their_key(tmp_path: Path) -> None:
    async with acting(tmp_path) as house:
        loaded = load(tmp_path / "config.yaml", SECRETS)
        assert findings(loaded) == []
        await keep_login(house)
        (found,) = findings(loaded)
        assert (found.status, str(found.message)) == ("ok", "1 logged in")
        login = await house.gateway.runtime.store.logins.get("feishu", "default", ALICE)
        assert login is not None
        await house.gateway.runtime.store.logins.end(login, 1.0)
        assert "ended, until they write /login: Alice" in str(findings(loaded)[0].message)
        (tmp_path / "data" / "secret.key").unlink()
        assert findings(loaded)[0].status == "warning"
        assert "guess" in str(findings(load(tmp_path / "config.yaml", SECRETS | {VARIABLE: "short"}))[0].message)
        assert texts(house) == []


async def test_doctor_wants_one_key_for_several_replicas(tmp_path: Path, postgres_url: str) -> None:
    scopes = f"{FEISHU}    login: {{ scopes: ['task:task:read'] }}\n"
    async with acting(tmp_path, feishu=scopes, more=f'database: {{ url: "{postgres_url}" }}'):
        file = tmp_path / "config.yaml"
        (found,) = findings(load(file, SECRETS))
        assert (found.status, VARIABLE in str(found.fix)) == ("warning", True)
        (found,) = findings(load(file, SECRETS | {VARIABLE: "a long text that nobody guesses"}))
        assert found.status == "ok"
