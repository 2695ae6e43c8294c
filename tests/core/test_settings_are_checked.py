from __future__ import annotations

import pytest

from trainlet.core.errors import UserError
from trainlet.core.settings import Settings


@pytest.mark.parametrize("api", ["foo", "localhost:8080", "ftp://host"])
def test_an_address_of_the_training_api_that_is_no_url_is_refused_at_once(api: str) -> None:
    with pytest.raises(UserError, match=r"TRAINLET_API=.* is no URL\. Write it as https://HOST"):
        Settings.from_environment({"TRAINLET_HOME": "/h", "TRAINLET_API": api})


def test_an_empty_address_is_none() -> None:
    assert Settings.from_environment({"TRAINLET_HOME": "/h", "TRAINLET_API": ""}).api is None
