"""Names of folders for chats and people: no two share one, and none leads anywhere."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.workspaces import Workspaces, chat_name, safe_name, sender_name
from channels.message import Chat, Sender
from tests.tools.bench import CALL
from tools.config import FilesConfig
from tools.workspace import folder_of

IDS = st.text(max_size=20) | st.text(alphabet="aA.=-_/:\u0130\udc80", max_size=300)
MESSAGE = CALL.message


@given(st.lists(st.tuples(IDS, IDS), min_size=2, max_size=2, unique=True))
def test_no_two_share_a_folder_on_any_file_system(pair: list[tuple[str, str]]) -> None:
    one, other = (safe_name("telegram", *ids) for ids in pair)
    assert one.casefold() != other.casefold()
    for name in (one, other):
        assert len(name) <= 200
        assert name.startswith("telegram.")
        assert name.isascii()
        assert not set(name) & set("/\\\0 :")


def test_what_is_harmless_stays_readable_and_what_is_long_is_shortened() -> None:
    assert safe_name("feishu", "default", "oc_0123") == "feishu.default.oc_0123"
    assert safe_name("web", "../A") == "web.=2e=2e=2f=41"
    assert safe_name("web", "x" * 196) == "web." + "x" * 196
    assert len(safe_name("web", "x" * 197)) == 166


def test_a_chat_is_one_of_its_account_and_a_person_one_of_his_platform() -> None:
    topic = replace(MESSAGE, chat=replace(MESSAGE.chat, thread="t"))
    other = replace(MESSAGE, account="sales")
    group = replace(MESSAGE, chat=Chat(id="oc_team", kind="group"))
    assert chat_name(MESSAGE) == chat_name(topic) != chat_name(other)
    assert sender_name(MESSAGE) == sender_name(other) != sender_name(group)
    assert sender_name(group) != sender_name(replace(group, sender=Sender(id="ou_bob")))


def test_workspace_evicted_from_the_cache_stays_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.workspaces.OPEN_MAX", 1)
    places = Workspaces(f"{tmp_path}/{{chat}}", FilesConfig(), language="en")
    first = places.of(MESSAGE, "s")
    number = first.fd
    places.of(replace(MESSAGE, account="sales"), "s")
    first.write("a.txt", b"x")
    assert (tmp_path / "feishu.default.oc_here" / "a.txt").read_bytes() == b"x"
    again = places.of(MESSAGE, "s")
    assert again.fd != number
    del first
    assert not Path(f"/proc/self/fd/{number}").exists()
    places.close()


def test_sessions_do_not_share_a_folder() -> None:
    names = {folder_of(Path("/x"), it).name for it in ("a", "A", "a ", "", "\udc80", "../a")}
    assert len(names) == 6
    assert all(len(name) == 32 and name.isalnum() for name in names)
