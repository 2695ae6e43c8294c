"""Wrong input is told with what, where and what to do: shapes, another run's objects, a bucket that is not there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from tests import servers

import trainlet as tl
from trainlet.cli import storage
from trainlet.client.stores import DirectoryStore, open_store
from trainlet.core.errors import PlatformError, UserError
from trainlet.core.models import canonical_json
from trainlet_functions.checkpoints import Checkpointer, list_checkpoints

PREFIX = "runs/r.train"


def saved(store: DirectoryStore, prefix: str = PREFIX) -> None:
    made = Checkpointer(store, prefix, 1)
    made.register(kept=np.full(3, 7.0), grown=np.ones((2, 2)))
    made.save(1)


def test_a_changed_shape_is_named_with_both_and_left_alone_when_asked_to(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    saved(store)
    kept, grown = np.zeros(3), np.zeros((4, 2))
    made = Checkpointer(store, PREFIX, 2)
    made.register(kept=kept, grown=grown)
    with pytest.raises(UserError, match=r"grown has shape \(4, 2\).*the checkpoint has \(2, 2\).*strict=False"):
        made.restore()
    assert not kept.any(), "nothing is touched before all fits"
    assert made.restore(strict=False) is not None
    assert set(kept) == {7.0} and not grown.any()


def test_a_log_that_names_the_manifest_of_another_run_is_refused(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    saved(store)
    saved(store, "runs/other.train")
    (mine, theirs) = (
        max((tmp_path / prefix / "log").iterdir(), key=lambda path: -int(path.stem))
        for prefix in (PREFIX, "runs/other.train")
    )
    record, other = json.loads(mine.read_bytes()), json.loads(theirs.read_bytes())
    record["state"]["commits"] = other["state"]["commits"]
    del record["b3"]
    mine.chmod(0o644)
    mine.write_bytes(canonical_json({**record, "b3": blake3(canonical_json(record)).hexdigest()}))
    said: list[str] = []
    made = Checkpointer(store, PREFIX, 2, emit=lambda kind, fields: said.append(str(fields)))
    made.register(kept=np.zeros(3), grown=np.zeros((2, 2)))
    assert made.restore() is None
    assert any("names a manifest elsewhere" in line and "runs/other.train" in line for line in said)


def test_a_log_of_a_newer_format_is_an_error_that_says_to_update(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    saved(store)
    path = min((tmp_path / PREFIX / "log").iterdir())
    record = json.loads(path.read_bytes())
    record["state"]["format"] = 99
    del record["b3"]
    path.chmod(0o644)
    path.write_bytes(canonical_json({**record, "b3": blake3(canonical_json(record)).hexdigest()}))
    with pytest.raises(UserError, match=r"format 99.*update it"):
        list_checkpoints(store, PREFIX)


def used(url: str) -> list[Callable[[], Any]]:
    """Return the ways in which somebody first meets a store: from outside, in a script, and with the doctor."""

    def script() -> None:
        with tl.checkpoint("run", store=url) as ck:
            ck.register(weights=np.zeros(3))
            ck.restore()

    def doctor() -> None:
        _, state, saw, _ = next(storage.examine(url, 30.0, sweep=False))
        assert state == "bad"
        raise PlatformError(saw)

    return [lambda: list_checkpoints(open_store(url), PREFIX), script, doctor]


@pytest.mark.parametrize("way", range(3), ids=["outside", "script", "doctor"])
def test_a_bucket_that_does_not_exist_is_named_with_what_to_do(way: int) -> None:
    with (
        servers.moto() as endpoint,
        servers.bucket_at(endpoint),
        pytest.raises(
            PlatformError, match=r"s3://not-there failed.*bucket 'not-there' does not exist at http.*Create it"
        ),
    ):
        used("s3://not-there")[way]()


@pytest.mark.parametrize("way", range(3), ids=["outside", "script", "doctor"])
def test_a_store_without_credentials_says_which_are_missing(way: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    for name in ("ENDPOINT_URL", "METADATA_ENDPOINT"):  # nobody is there: no role gives this machine any
        monkeypatch.setenv(f"AWS_{name}", "http://127.0.0.1:1")
    monkeypatch.setattr("trainlet.client.stores.s3.FIRST_PAUSE_S", 0.0)
    with pytest.raises(PlatformError, match=r"s3://bucket failed.*no credentials for http.*Set AWS_ACCESS_KEY_ID and"):
        used("s3://bucket")[way]()
