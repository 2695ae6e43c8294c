"""A checkpoint in a bucket can be read through signed links by somebody without credentials, for a limited time."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from blake3 import blake3
from click.testing import CliRunner
from tests import servers

import trainlet as tl
from trainlet.cli.saved import checkpoints
from trainlet.client.stores import open_store
from trainlet_functions.checkpoints import Checkpointer


@pytest.fixture
def url() -> Iterator[str]:
    with servers.moto() as endpoint, servers.bucket_at(endpoint, key="the-name", secret="the-secret") as bucket:
        yield f"{bucket}/some/prefix"


def save(url: str, *steps: int) -> None:
    weights = np.zeros((3, 2))
    made = Checkpointer(open_store(url), "runs/r.train", 1)
    made.register(weights=weights)
    for step in steps:
        weights[:] = step
        made.save(step)


def read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as reply:
        found: bytes = reply.read()
    return found


def test_a_checkpoint_is_read_and_checked_without_credentials(url: str) -> None:
    save(url, 1, 2)
    found = tl.checkpoints.link("r.train", step=1, valid="10m", store=url)
    raw = read(found.manifest)
    assert blake3(raw).hexdigest() == found.digest and found.step == 1
    (part,) = json.loads(raw)["tensors"]["weights"]["slices"]
    data = read(found.packs[part["pack"]])[slice(*part["range"])]
    assert blake3(data).hexdigest() == part["b3"] and set(np.frombuffer(data)) == {1.0}


def test_a_link_says_how_long_it_lives_and_holds_no_secret(url: str) -> None:
    save(url, 1)
    found = tl.checkpoints.link("r.train", valid="2d", store=url)
    for one in (found.manifest, *found.packs.values()):
        signed: dict[str, Any] = parse_qs(urlsplit(one).query)
        assert signed["X-Amz-Expires"] == [str(2 * 86_400)] and signed["X-Amz-Algorithm"] == ["AWS4-HMAC-SHA256"]
        assert "the-secret" not in one
    for valid in ("8d", "0.1s"):
        with pytest.raises(tl.UserError, match="1 s to 7 days"):
            tl.checkpoints.link("r.train", valid=valid, store=url)


def test_the_command_prints_the_manifest_first(url: str) -> None:
    save(url, 1, 2)
    done = CliRunner().invoke(checkpoints, ["link", "r.train", "--store", url, "--valid", "1h"])
    manifest, pack = done.output.split()
    assert json.loads(read(manifest))["step"] == 2 and "/packs/" in pack


def test_a_directory_has_no_links_and_says_what_to_do(tmp_path: Path) -> None:
    save(str(tmp_path), 1)
    with pytest.raises(tl.UserError, match=r"no bucket.*trainlet checkpoints export r.train FILE"):
        tl.checkpoints.link("r.train", store=str(tmp_path))


def test_a_step_that_is_not_there_is_told(url: str) -> None:
    with pytest.raises(tl.NotFoundError):
        tl.checkpoints.link("r.train", store=url)
    save(url, 3)
    with pytest.raises(tl.NotFoundError, match="there are: 3"):
        tl.checkpoints.link("r.train", step=1, store=url)
