"""A bucket that is not there, and one without credentials, are told in words by every call, and are never an empty store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import servers

from trainlet.client.stores import open_store
from trainlet.core.errors import PlatformError, UserError

CALLS: dict[str, Callable[[Any, Path], Any]] = {
    "list": lambda store, path: list(store.list("runs/x/log/")),
    "get": lambda store, path: store.get("runs/x/a"),
    "get_range": lambda store, path: store.get_range("runs/x/a", 0, 3),
    "get_file": lambda store, path: store.get_file("runs/x/a", path / "file"),
    "exists": lambda store, path: store.exists("runs/x/a"),
    "create": lambda store, path: store.create("runs/x/a", b"some"),
    "delete": lambda store, path: store.delete("runs/x/a"),
    "put_file": lambda store, path: store.put_file("runs/x/a", Path(__file__)),
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with servers.moto() as endpoint:
        yield endpoint


@pytest.fixture
def anonymous(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a bucket that exists, for somebody without credentials on a machine without a role."""
    with servers.bucket_at(endpoint) as url:
        pass
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr("trainlet.client.stores.s3.FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr("trainlet.client.stores.s3.RETRIES", 1)
    return url


@pytest.mark.parametrize("call", CALLS)
def test_every_call_says_that_a_bucket_does_not_exist(
    endpoint: str, call: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with servers.bucket_at(endpoint):
        store = open_store("s3://not-there/prefix")
        with pytest.raises(
            PlatformError, match=rf"s3://not-there/prefix.*'not-there' does not exist at {endpoint}\. Create it"
        ):
            CALLS[call](store, tmp_path)


@pytest.mark.parametrize("call", CALLS)
def test_every_call_says_that_there_are_no_credentials(anonymous: str, call: str, tmp_path: Path) -> None:
    with pytest.raises(
        PlatformError, match=rf"{anonymous}.*no credentials for http.*Set AWS_ACCESS_KEY_ID and AWS_SECRET"
    ):
        CALLS[call](open_store(anonymous), tmp_path)


def test_an_object_that_is_missing_in_a_bucket_that_exists_is_just_missing(endpoint: str) -> None:
    with servers.bucket_at(endpoint) as url:
        store = open_store(url)
        assert not store.exists("runs/x/a")
        with pytest.raises(FileNotFoundError):
            store.get("runs/x/a")
        store.delete("runs/x/a")


def test_half_of_the_credentials_are_refused_before_anything_is_asked(anonymous: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    with pytest.raises(UserError, match=r"cannot be opened.*AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY go together"):
        open_store(anonymous)


@pytest.mark.parametrize("address", ["nonsense", "localhost:9000", "ftp://host", "http://"])
def test_an_endpoint_that_is_no_address_is_refused_before_anything_is_asked(
    anonymous: str, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    with pytest.raises(UserError, match=rf"AWS_ENDPOINT_URL is '{address}', which is no http:// or https:// address"):
        open_store(anonymous)
