"""A subclass of datetime would come back as something else, so it is refused where it is sent."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from trainlet.client.stores import DirectoryStore
from trainlet.core import codecs
from trainlet.core.errors import UserError


class Stamp(datetime.datetime):
    """As pandas' Timestamp: a datetime with more to it."""


def test_a_subclass_of_datetime_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"value\['when'\] is a .*Stamp"):
        codecs.encode({"when": Stamp(2026, 1, 1)}, DirectoryStore(tmp_path))
