"""Secrets kept for the embedded platform: written whole and private, found again, forgotten."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import keyring
import keyring.backend
import keyring.backends.fail
import pytest
from keyring.errors import KeyringLocked, PasswordDeleteError

from trainlet.client import secrets
from trainlet.core.errors import UserError


class InMemory(keyring.backend.KeyringBackend):
    """A keyring that works like the desktop's, and can be locked like it."""

    priority = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[tuple[str, str], str] = {}
        self.locked = False

    def _look(self) -> None:
        if self.locked:
            raise KeyringLocked("the keyring is locked")

    def get_password(self, service: str, username: str) -> str | None:
        self._look()
        return self.values.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._look()
        self.values[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._look()
        if self.values.pop((service, username), None) is None:
            raise PasswordDeleteError("not found")


@pytest.fixture
def desktop() -> Iterator[InMemory]:
    before = keyring.get_keyring()
    backend = InMemory()
    keyring.set_keyring(backend)
    yield backend
    keyring.set_keyring(before)


def test_a_value_is_kept_in_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        secrets.put(tmp_path, "hf-token", "first")
        secrets.put(tmp_path, "hf-token", "second")
    finally:
        os.umask(before)
    path = tmp_path / "secrets" / "hf-token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert secrets.get(tmp_path, "hf-token") == "second"
    assert secrets.names(tmp_path) == {"hf-token": "file"}
    assert [one.name for one in path.parent.iterdir()] == ["hf-token"]


def test_the_keyring_keeps_a_value_and_no_file_has_it(tmp_path: Path, desktop: InMemory) -> None:
    secrets.put(tmp_path, "hf-token", "in-a-file")
    secrets.put(tmp_path, "hf-token", "in-the-keyring", in_keyring=True)
    assert secrets.names(tmp_path) == {"hf-token": "keyring"}
    assert secrets.get(tmp_path, "hf-token") == "in-the-keyring"
    assert not any(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_a_file_takes_the_place_of_the_keyring(tmp_path: Path, desktop: InMemory) -> None:
    secrets.put(tmp_path, "hf-token", "in-the-keyring", in_keyring=True)
    secrets.put(tmp_path, "hf-token", "in-a-file")
    assert secrets.get(tmp_path, "hf-token") == "in-a-file"
    assert desktop.values == {}


def test_two_homes_do_not_share_what_the_keyring_has(tmp_path: Path, desktop: InMemory) -> None:
    secrets.put(tmp_path / "one", "hf-token", "of-one", in_keyring=True)
    secrets.put(tmp_path / "two", "hf-token", "of-two", in_keyring=True)
    secrets.remove(tmp_path / "two", "hf-token")
    assert secrets.get(tmp_path / "one", "hf-token") == "of-one"
    with pytest.raises(UserError, match="There is no secret 'hf-token'"):
        secrets.get(tmp_path / "two", "hf-token")


@pytest.mark.parametrize("in_keyring", [False, True])
def test_what_is_forgotten_is_gone(tmp_path: Path, desktop: InMemory, in_keyring: bool) -> None:
    secrets.put(tmp_path, "hf-token", "value", in_keyring=in_keyring)
    secrets.remove(tmp_path, "hf-token")
    assert secrets.names(tmp_path) == {}
    assert desktop.values == {}
    with pytest.raises(UserError, match="Known: none"):
        secrets.remove(tmp_path, "hf-token")


def test_what_the_persons_own_program_removed_can_be_forgotten(tmp_path: Path, desktop: InMemory) -> None:
    secrets.put(tmp_path, "hf-token", "value", in_keyring=True)
    desktop.values.clear()
    with pytest.raises(UserError, match="trainlet secrets set hf-token"):
        secrets.get(tmp_path, "hf-token")
    secrets.remove(tmp_path, "hf-token")
    assert secrets.names(tmp_path) == {}


def test_a_locked_keyring_says_so_and_nothing_changes(tmp_path: Path, desktop: InMemory) -> None:
    secrets.put(tmp_path, "hf-token", "value", in_keyring=True)
    desktop.locked = True
    for call in (
        lambda: secrets.get(tmp_path, "hf-token"),
        lambda: secrets.put(tmp_path, "hf-token", "other", in_keyring=True),
        lambda: secrets.remove(tmp_path, "hf-token"),
    ):
        with pytest.raises(UserError, match="the keyring is locked"):
            call()
    desktop.locked = False
    assert secrets.get(tmp_path, "hf-token") == "value"


def test_a_machine_without_a_keyring_says_what_to_do(tmp_path: Path, desktop: InMemory) -> None:
    keyring.set_keyring(keyring.backends.fail.Keyring())
    with pytest.raises(UserError, match="keep the secret in a file"):
        secrets.put(tmp_path, "hf-token", "value", in_keyring=True)
    assert secrets.names(tmp_path) == {}


def test_an_empty_value_changes_nothing(tmp_path: Path) -> None:
    secrets.put(tmp_path, "hf-token", "value")
    with pytest.raises(UserError, match="is empty"):
        secrets.put(tmp_path, "hf-token", "")
    assert secrets.get(tmp_path, "hf-token") == "value"


@pytest.mark.parametrize("name", ["../token", "a/b", "", ".hidden"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    for call in (secrets.get, secrets.remove):
        with pytest.raises(UserError, match="not the name of a secret"):
            call(tmp_path, name)
    with pytest.raises(UserError, match="not the name of a secret"):
        secrets.put(tmp_path, name, "value")
    assert list(tmp_path.iterdir()) == []
