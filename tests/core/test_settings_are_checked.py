from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest

from trainlet.core.errors import UserError
from trainlet.core.settings import Settings


@pytest.mark.parametrize("api", ["foo", "localhost:8080", "ftp://host"])
def test_an_address_of_the_training_api_that_is_no_url_is_refused_at_once(api: str) -> None:
    with pytest.raises(UserError, match=r"TRAINLET_API=.* is no URL\. Write it as https://HOST"):
        Settings.from_environment({"TRAINLET_HOME": "/h", "TRAINLET_API": api})


def test_an_empty_address_is_none() -> None:
    assert Settings.from_environment({"TRAINLET_HOME": "/h", "TRAINLET_API": ""}).api is None


def test_without_a_home_in_the_environment_it_is_the_users_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    found = Settings.from_environment({}).home
    assert found == Path(platformdirs.user_data_dir("trainlet", appauthor=False))
    assert found.is_relative_to(tmp_path) and found.name == "trainlet"


def test_a_home_may_begin_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Settings.from_environment({"TRAINLET_HOME": "~/mine"}).home == tmp_path / "mine"
