from __future__ import annotations

from pathlib import Path

import pytest

from trainlet.core.errors import UserError
from trainlet_functions import secrets


@pytest.fixture(autouse=True)
def no_secrets_of_the_person(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINLET_SECRETS_DIR", raising=False)
    monkeypatch.delenv("TRAINLET_SECRET_HF_TOKEN", raising=False)


def put(home: Path, value: str, mode: int = 0o600) -> Path:
    path = home / "secrets" / "hf-token"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value)
    path.chmod(mode)
    return path


def test_the_child_finds_it_under_an_environment_name() -> None:
    assert secrets.variable("hf-token") == "HF_TOKEN"


def test_a_private_file_of_the_home_is_read(tmp_path: Path) -> None:
    put(tmp_path, "from-file\n")
    assert secrets.lookup(tmp_path, "hf-token") == "from-file"


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "from-file")
    monkeypatch.setenv("TRAINLET_SECRET_HF_TOKEN", "from-environment")
    assert secrets.lookup(tmp_path, "hf-token") == "from-environment"


def test_a_mounted_folder_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mounted").mkdir()
    (tmp_path / "mounted" / "hf-token").write_text("from-mount\n")
    monkeypatch.setenv("TRAINLET_SECRETS_DIR", str(tmp_path / "mounted"))
    assert secrets.lookup(tmp_path / "home", "hf-token") == "from-mount"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_that_others_can_read_is_refused_with_the_fix(tmp_path: Path, mode: int) -> None:
    path = put(tmp_path, "from-file", mode)
    with pytest.raises(UserError, match=f"chmod 600 {path}") as caught:
        secrets.lookup(tmp_path, "hf-token")
    assert "from-file" not in str(caught.value)


def test_a_missing_secret_says_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        secrets.lookup(tmp_path, "hf-token")
    assert "trainlet secrets set hf-token" in str(caught.value)
    assert str(tmp_path / "secrets" / "hf-token") in str(caught.value)
    assert "TRAINLET_SECRET_HF_TOKEN" in str(caught.value)


@pytest.mark.parametrize("name", ["../token", "a/b", "", ".hidden"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "token").write_text("outside")
    (tmp_path / "token").chmod(0o600)
    with pytest.raises(UserError, match="not the name of a secret"):
        secrets.lookup(tmp_path, name)


def test_values_are_masked_the_longest_first() -> None:
    masker = secrets.Masker(["token", "token-and-more", "a.b+c"])
    assert masker.mask("x token-and-more y token z a.b+c axb+c") == "x *** y *** z *** axb+c"


def test_each_line_of_a_value_is_masked() -> None:
    assert secrets.Masker(["first line\nsecond line"]).mask("got second line") == "got ***"


def test_nothing_is_masked_without_values() -> None:
    assert secrets.Masker([]).mask("all of this") == "all of this"
    assert secrets.Masker([""]).mask("all of this") == "all of this"
