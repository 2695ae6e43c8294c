"""Every store gives the same promises: created once, whole or not at all, and never a silent failure."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests import servers

from trainlet.client.stores import DirectoryStore, open_store
from trainlet.core.errors import PlatformError, UserError


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with servers.moto() as endpoint, servers.bucket_at(endpoint) as url:
        yield f"{url}/prefix"


@pytest.fixture(params=["directory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "directory":
        return open_store(str(tmp_path / "store"))
    return open_store(request.getfixturevalue("s3") + f"/{tmp_path.name}")


def test_an_object_is_created_once(store: Any) -> None:
    store.create("a/b", b"first")
    with pytest.raises(FileExistsError):
        store.create("a/b", b"first")
    assert store.get("a/b") == b"first"


def test_of_many_that_create_at_once_one_wins(store: Any) -> None:
    def create(number: int) -> bool:
        try:
            store.create("race", str(number).encode() * 1000)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = [number for number, win in enumerate(pool.map(create, range(16))) if win]
    assert len(won) == 1
    assert store.get("race") == str(won[0]).encode() * 1000


def test_ranges_listing_and_removal(store: Any, tmp_path: Path) -> None:
    for key in ("x/2", "x/10", "x/a/1", "xy"):
        store.create(key, key.encode())
    assert [item.key for item in store.list("x/")] == ["x/10", "x/2", "x/a/1"]
    assert [item.key for item in store.list("x/", limit=1)] == ["x/10"]
    assert list(store.list("nothing/")) == []
    assert store.get_range("x/10", 1, 3) == b"/1"
    store.get_file("x/2", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"x/2"
    store.delete("x/2")
    store.delete("x/2")
    assert not store.exists("x/2") and store.exists("x/10")


def test_a_missing_object_is_told_by_its_key(store: Any, tmp_path: Path) -> None:
    for call in (
        lambda: store.get("no"),
        lambda: store.get_range("no", 0, 1),
        lambda: store.get_file("no", tmp_path / "f"),
    ):
        with pytest.raises(FileNotFoundError, match="no"):
            call()


@pytest.mark.parametrize("key", ["../x", "/x", "a//b", "a/../b", ".hidden", "a/.tmp/x", "a\0b", ""])
def test_a_key_that_leads_elsewhere_is_refused(store: Any, key: str) -> None:
    with pytest.raises(UserError, match="not a valid store key"):
        store.create(key, b"")


def test_a_file_is_put_once_and_is_read_only(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    (tmp_path / "source").write_bytes(b"content")
    store.put_file("blob", tmp_path / "source")
    store.put_file("blob", tmp_path / "source")
    path = store.local_path("blob")
    assert path is not None and path.read_bytes() == b"content" and path.stat().st_mode & 0o222 == 0
    assert [item.key for item in store.list("")] == ["blob"]


def test_a_full_disk_is_a_platform_error_that_says_what_to_do_and_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import resource, signal, sys; from pathlib import Path; from trainlet.client.stores import DirectoryStore\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "store = DirectoryStore(Path(sys.argv[1]))\n"
        "store.create('small', b'x')\n"
        "try: store.create('big', b'x' * 1_000_000)\n"
        "except Exception as error: print(type(error).__name__, error)\n"
        "print([item.key for item in store.list('')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "s")], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first.startswith("PlatformError") and "file size limit" in first
    assert second == "['small']"


def test_a_broken_store_is_never_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file where the folder should be")
    store = DirectoryStore(tmp_path / "store")
    with pytest.raises(PlatformError):
        store.create("a", b"")
    with pytest.raises(PlatformError):
        list(store.list("runs/x/"))


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(UserError, match="use file:///path"):
        open_store("ftp://host/x")
