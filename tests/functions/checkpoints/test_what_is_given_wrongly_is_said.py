"""Wrong input is told with what, where and what to do: shapes, another run's objects, a bucket that is not there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3

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


def test_a_bucket_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in (("ENDPOINT_URL", f"http://{host}:{port}"), ("ACCESS_KEY_ID", "x"), ("SECRET_ACCESS_KEY", "x")):
        monkeypatch.setenv(f"AWS_{name}", value)
    try:
        with pytest.raises(PlatformError, match=r"s3://not-there failed.*Check the bucket and the AWS_"):
            list_checkpoints(open_store("s3://not-there"), PREFIX)
    finally:
        server.stop()
