from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests import tiny_wheels

from trainlet import bundles
from trainlet.bundles import locks
from trainlet.core.errors import PlatformError, UserError
from trainlet_functions import environments


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Offer two versions of a tiny package, and nothing from any network."""
    return tiny_wheels.offer(tmp_path, monkeypatch)


def whole(folder: Path) -> list[str]:
    """Return what is in the folder of environments, but for locks and downloads."""
    kept = [path.name for path in (folder / "environments").iterdir() if path.name != "downloads"]
    return [name for name in kept if not name.endswith(".lock")]


def fake_uv(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put an installer in place that does as it is told."""
    uv = folder / "uv"
    uv.write_text(f"#!/bin/sh\n{script}\n")
    uv.chmod(0o755)
    monkeypatch.setattr(environments, "find_uv", lambda: str(uv))
    return uv


def say(python: Path, expression: str) -> str:
    code = f"import tinything, trainlet, numpy; print({expression})"
    return subprocess.run(
        [str(python), "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


@pytest.mark.usefixtures("wheels")
def test_the_lock_has_hashes_and_is_part_of_the_bundle() -> None:
    plain = bundles.build(tiny_wheels.make_wheel)
    locked = bundles.build(tiny_wheels.make_wheel, packages=("tinything==1.0",))
    assert locked.lock is not None and "tinything==1.0" in locked.lock and "--hash=sha256:" in locked.lock
    assert locked.files["requirements.lock"] == locked.lock
    assert plain.lock is None and plain.lock_sha256 is None and plain.digest != locked.digest
    assert bundles.build(tiny_wheels.make_wheel, packages=("tinything==2.0",)).digest != locked.digest


@pytest.mark.usefixtures("wheels")
def test_a_requirements_file_is_locked_as_the_same_list_is(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("tinything==1.0\n")
    assert locks.lock(path) == locks.lock(("tinything==1.0",))


@pytest.mark.usefixtures("wheels")
def test_an_edited_requirements_file_is_locked_again(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("tinything==1.0\n")
    before = locks.lock(path)
    path.write_text("tinything==2.0\n")
    assert "tinything==2.0" in locks.lock(path) != before


@pytest.mark.usefixtures("wheels")
def test_a_file_that_a_requirements_file_includes_is_found_beside_it_and_never_stale(tmp_path: Path) -> None:
    path, included = tmp_path / "requirements.txt", tmp_path / "base.txt"
    path.write_text("-r base.txt\n")
    included.write_text("tinything==1.0\n")
    before = locks.lock(path)
    included.write_text("tinything==2.0\n")
    assert "tinything==1.0" in before and "tinything==2.0" in locks.lock(path)


def test_an_installer_sees_no_token_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tmp_path / "seen"
    uv = tmp_path / "uv"
    uv.write_text(f"#!/bin/sh\nenv > {seen}\n")
    uv.chmod(0o755)
    monkeypatch.setattr(environments, "find_uv", lambda: str(uv))
    monkeypatch.setenv("TRAINLET_WORKER_TOKEN", "token-of-the-worker")
    monkeypatch.setenv("TRAINLET_SECRET_HF_TOKEN", "secret-of-a-step")
    monkeypatch.setenv("UV_INDEX_STRATEGY", "first-index")
    environments.install(tmp_path / "home", "")
    text = seen.read_text()
    assert "UV_INDEX_STRATEGY=first-index" in text
    assert "token-of-the-worker" not in text and "secret-of-a-step" not in text


@pytest.mark.usefixtures("wheels")
def test_packages_that_do_not_exist_are_an_error_with_the_words_of_the_resolver() -> None:
    with pytest.raises(UserError, match=r"(?s)could not be locked.*tinything"):
        locks.lock(("tinything==9.9",))


def test_a_missing_requirements_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        locks.lock(tmp_path / "none.txt")


@pytest.mark.usefixtures("wheels")
def test_the_environment_has_the_locked_package_and_the_workers_own(tmp_path: Path) -> None:
    python = environments.install(tmp_path / "home", locks.lock(("tinything==1.0",)))
    assert say(python, "tinything.VERSION") == "1.0"
    assert str(tmp_path / "home") in say(python, "tinything.__file__")


@pytest.mark.usefixtures("wheels")
def test_each_lock_has_its_own_environment_and_is_installed_once(tmp_path: Path) -> None:
    first, second = locks.lock(("tinything==1.0",)), locks.lock(("tinything==2.0",))
    python = environments.install(tmp_path, first)
    assert environments.install(tmp_path, second) != python
    assert environments.install(tmp_path, first) == python


@pytest.mark.usefixtures("wheels")
def test_an_environment_that_somebody_began_is_never_used_and_removed_when_nobody_can_be_at_it(tmp_path: Path) -> None:
    lock = locks.lock(("tinything==1.0",))
    folder = environments.install(tmp_path / "other", lock).parents[1]
    digest = folder.name.partition(".")[0]
    begun, old = (tmp_path / "environments" / f"{digest}.{name}" for name in ("begun", "old"))
    for half in (begun, old):
        shutil.copytree(folder, half, symlinks=True)
        next(half.rglob("tinything.py")).unlink()
    os.utime(old, (0, 0))
    assert say(environments.install(tmp_path, lock), "tinything.VERSION") == "1.0"
    assert begun.exists() and not old.exists()


def test_a_wheel_with_another_hash_is_refused(tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = locks.lock(("tinything==1.0",))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache of another machine"))
    found = wheels / "tinything-1.0-py3-none-any.whl"
    with zipfile.ZipFile(found, "a") as archive:
        archive.writestr("added.py", "")
    with pytest.raises(UserError, match="could not be installed"):
        environments.install(tmp_path, lock)
    assert whole(tmp_path) == []


@pytest.mark.usefixtures("wheels")
def test_processes_that_need_the_same_environment_at_once_all_get_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(locks.lock(("tinything==1.0",)))
    code = (
        "import pathlib, sys; from trainlet_functions import environments as e; "
        "print(e.install(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).read_text()))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "home"), str(lock)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = {process.communicate(timeout=100)[0].strip() for process in running}
    assert [process.returncode for process in running] == [0, 0, 0] and len(said) == 1
    assert say(Path(said.pop()), "tinything.VERSION") == "1.0"


@pytest.mark.usefixtures("wheels")
def test_pods_without_trusted_locks_never_see_half_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two install at once; the second to publish finds the first one's and gives up its own."""
    lock = locks.lock(("tinything==1.0",))

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    made = environments._make

    def overtaken(target: Path, *arguments: object) -> None:
        monkeypatch.setattr(environments, "_make", made)
        overtaken.python = environments.install(tmp_path, lock)  # type: ignore[attr-defined]
        made(target, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(environments, "_make", overtaken)
    assert environments.install(tmp_path, lock) == overtaken.python  # type: ignore[attr-defined]
    assert len(whole(tmp_path)) == 2, "one environment, and the link to it"
    assert say(overtaken.python, "tinything.VERSION") == "1.0"  # type: ignore[attr-defined]


@pytest.mark.usefixtures("wheels")
def test_with_a_cache_environments_and_downloads_are_there_and_not_at_home(tmp_path: Path) -> None:
    lock = locks.lock(("tinything==1.0",))
    home, cache = tmp_path / "home", tmp_path / "cache"
    python = environments.install(home, lock, cache=cache)
    assert cache in python.parents and not home.exists()
    assert environments.install(tmp_path / "home of another pod", lock, cache=cache) == python
    assert (cache / "environments" / "downloads" / "uv").is_dir()


def test_a_download_that_breaks_off_once_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = tmp_path / "tries"
    fake_uv(tmp_path, f"echo x >> {tries}; test $(wc -l < {tries}) -ge 2 || exit 1", monkeypatch)
    environments.install(tmp_path, "")
    assert tries.read_text() == "x\nx\n" and len(whole(tmp_path)) == 2
    fake_uv(tmp_path, "echo 'error decoding response body' >&2; exit 2", monkeypatch)
    with pytest.raises(UserError, match="error decoding response body"):
        environments.install(tmp_path, "# another")
    assert len(whole(tmp_path)) == 2, "nothing half is left"


def test_a_full_cache_makes_a_pod_install_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache, home = tmp_path / "cache", tmp_path / "home"
    full = f'case "$*" in *{cache}*) echo "failed to write: No space left on device (os error 28)"; exit 2;; esac'
    fake_uv(tmp_path, full, monkeypatch)
    assert home in environments.install(home, "", cache=cache).parents
    assert whole(cache) == [] and "do not fit into" in caplog.text
    fake_uv(tmp_path, 'echo "No space left on device"; exit 2', monkeypatch)
    with pytest.raises(environments.DiskFull, match=r"MiB are free.*give it more room"):
        environments.install(home, "# another", cache=cache)
    assert whole(home) != [] and whole(cache) == []


def test_a_cache_that_cannot_be_written_makes_a_pod_install_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_uv(tmp_path, "exit 0", monkeypatch)
    (tmp_path / "cache").write_text("a file where a folder should be")
    assert tmp_path / "home" in environments.install(tmp_path / "home", "", cache=tmp_path / "cache").parents


def test_a_worker_that_must_go_waits_neither_for_an_installer_nor_for_another_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_uv(tmp_path, "sleep 600", monkeypatch)
    with pytest.raises(PlatformError, match="while its packages were installed"):
        environments.install(tmp_path, "", given_up=lambda: any(tmp_path.rglob("requirements.lock")))
    (guard,) = (tmp_path / "environments").glob("*.lock")
    with guard.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(PlatformError, match="while another worker installed"):
            environments.install(tmp_path, "", given_up=lambda: True)
