"""Sealed texts: bound to their row and column, and never a reason for a start that fails."""

import os
from pathlib import Path

import pytest

from gateway.state.seal import VARIABLE, Seal, Unsealable
from tests.running import ALICE, BOB

ROW = ("feishu", "default", ALICE, "access")


def test_seal_is_bound_to_its_row_and_column(tmp_path: Path) -> None:
    seal = Seal({}, tmp_path / "data" / "secret.key")
    sealed = seal.seal("u-token", *ROW)
    assert "u-token" not in sealed
    assert sealed != seal.seal("u-token", *ROW)
    assert Seal({}, tmp_path / "data" / "secret.key").unseal(sealed, *ROW) == "u-token"
    for other in (("feishu", "default", BOB, "access"), (*ROW[:3], "refresh"), ("feishu", "d", "efault", *ROW[2:])):
        with pytest.raises(Unsealable):
            seal.unseal(sealed, *other)
    for damaged in ("", "1.", sealed[:-4] + "AAAA", "u-token", "\u4e2d"):
        with pytest.raises(Unsealable):
            seal.unseal(damaged, *ROW)


def test_seal_key_of_the_environment_comes_before_the_file(tmp_path: Path) -> None:
    file, env = tmp_path / "secret.key", {VARIABLE: "a long text that nobody guesses"}
    sealed = Seal(env, file).seal("u-token", *ROW)
    assert not file.exists()
    assert Seal(env, tmp_path / "other").unseal(sealed, *ROW) == "u-token"
    with pytest.raises(Unsealable):
        Seal({}, file).unseal(sealed, *ROW)


def test_seal_key_file_is_private_and_the_first_ones(tmp_path: Path) -> None:
    file = tmp_path / "secret.key"
    before = os.umask(0)
    try:
        first, second = Seal({}, file), Seal({}, file)
        sealed = first.seal("u-token", *ROW)
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o600
    assert second.unseal(sealed, *ROW) == "u-token"
    assert [it.name for it in tmp_path.iterdir()] == ["secret.key"]
    file.write_bytes(b"")
    assert Seal({}, file).seal("u-token", *ROW)
    assert file.read_bytes()
    file.write_bytes(b"\xff\xfe damaged")
    with pytest.raises(Unsealable):
        Seal({}, file).unseal(sealed, *ROW)
