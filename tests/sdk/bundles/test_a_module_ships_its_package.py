from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainlet import bundles
from trainlet.bundles import packaging
from trainlet.core import bundles as format_
from trainlet.core.errors import PlatformError, UserError

Write = Callable[[dict[str, str]], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write modules to an importable folder; they are forgotten afterwards."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)

    def files(sources: dict[str, str]) -> None:
        for name, text in sources.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        importlib.invalidate_caches()

    yield files
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(folder) in str(sys.modules[name].__file__):
            del sys.modules[name]


PACKAGE = {
    "shipped_pkg/__init__.py": "",
    "shipped_pkg/deep/__init__.py": "",
    "shipped_pkg/deep/steps.py": (
        "from pathlib import Path\nfrom ..words import LAST\nimport shipped_beside\n\n"
        "def train(x):\n    return (Path(__file__).parent / 'note.txt').read_text() + LAST + shipped_beside.END + x\n"
    ),
    "shipped_pkg/deep/note.txt": "note",
    "shipped_pkg/words.py": "LAST = '-last'\n",
    "shipped_pkg/.git/config": "secret",
    "shipped_pkg/venv/lib.py": "",
    "shipped_beside.py": "END = '-end-'\n",
    "never_imported.py": "",
}


def test_the_whole_package_and_local_modules_run_elsewhere(write: Write, call: Any) -> None:
    write(PACKAGE)
    bundle = bundles.build(importlib.import_module("shipped_pkg.deep.steps").train)
    assert call(bundle.data, "x") == "note-last-end-x"
    assert set(bundle.files) == {
        "shipped_pkg/__init__.py",
        "shipped_pkg/deep/__init__.py",
        "shipped_pkg/deep/steps.py",
        "shipped_pkg/deep/note.txt",
        "shipped_pkg/words.py",
        "shipped_beside.py",
        "trainlet.json",
    }


def test_a_subpackage_called_dist_or_build_is_shipped_and_a_virtual_environment_is_not(write: Write, call: Any) -> None:
    write(
        {
            "spread_pkg/__init__.py": "",
            "spread_pkg/dist/__init__.py": "",
            "spread_pkg/dist/comm.py": "N = 3\n",
            "spread_pkg/build/__init__.py": "M = 4\n",
            "spread_pkg/build/lib/__init__.py": "L = 5\n",
            "spread_pkg/env/pyvenv.cfg": "",
            "spread_pkg/env/lib/other.py": "",
            "spread_pkg/steps.py": (
                "from .build import M\nfrom .build.lib import L\nfrom .dist.comm import N\n"
                "def train():\n    return [N, M, L]\n"
            ),
        }
    )
    bundle = bundles.build(importlib.import_module("spread_pkg.steps").train)
    assert call(bundle.data) == [3, 4, 5]
    assert not [path for path in bundle.files if "/env/" in path]


def test_a_single_file_ships_the_local_modules_it_imports_and_no_installed_ones(write: Write) -> None:
    write(
        {
            "lone_step.py": "import json, numpy, trainlet, lone_a\ndef train():\n    return lone_a.value()\n",
            "lone_a.py": "from lone_b import value\n",
            "lone_b.py": "def value():\n    return 1\n",
        }
    )
    bundle = bundles.build(importlib.import_module("lone_step").train)
    assert set(bundle.files) == {"lone_step.py", "lone_a.py", "lone_b.py", "trainlet.json"}
    assert bundle.imports == ("numpy", "trainlet.pipelines")
    assert bundle.versions == {"numpy": importlib.import_module("numpy").__version__}


def test_the_manifest_says_where_to_start(write: Write) -> None:
    write({"lone_entry.py": "def train():\n    return 1\n"})
    bundle = bundles.build(importlib.import_module("lone_entry").train)
    manifest = format_.read_manifest(format_.unpack(bundle.data))
    assert (manifest.entry.module, manifest.entry.qualname) == ("lone_entry", "train")
    assert manifest.python == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert format_.digest_of(bundle.data) == bundle.digest


def test_an_edited_file_is_shipped_as_it_is_now(write: Write) -> None:
    write({"lone_edited.py": "import lone_part\ndef train():\n    return 1\n", "lone_part.py": "X = 1\n"})
    function = importlib.import_module("lone_edited").train
    before = bundles.build(function).digest
    write({"lone_part.py": "X = 2\n"})
    assert bundles.build(function).digest != before


def test_time_stamps_do_not_change_the_digest(write: Write, tmp_path: Path) -> None:
    write({"lone_old.py": "def train():\n    return 1\n"})
    function = importlib.import_module("lone_old").train
    before = bundles.build(function)
    os.utime(tmp_path / "project" / "lone_old.py", (1, 1))
    assert bundles.build(function).data == before.data


def test_too_much_code_is_an_error_that_names_the_biggest_files(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaging, "MAX_BYTES", 10_000)
    write({"fat_pkg/__init__.py": "def train():\n    return 1\n", "fat_pkg/table.csv": "1," * 6000})
    with pytest.raises(UserError, match=r"fat_pkg/table\.csv \(12,000 bytes\)"):
        bundles.build(importlib.import_module("fat_pkg").train)


def test_a_bundle_with_other_content_is_refused(write: Write, tmp_path: Path) -> None:
    write({"lone_true.py": "def train():\n    return 1\n"})
    bundle = bundles.build(importlib.import_module("lone_true").train)
    files = {**format_.unpack(bundle.data), "lone_true.py": b"def train():\n    return 2\n"}
    with pytest.raises(PlatformError, match="refused"):
        format_.extract(format_.pack(files)[1], bundle.digest, tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_building_again_is_cheap(write: Write) -> None:
    write({"lone_quick.py": "import numpy\ndef train():\n    return 1\n"})
    function = importlib.import_module("lone_quick").train
    bundles.build(function)
    took = []
    for _ in range(20):
        start = time.perf_counter()
        bundles.build(function)
        took.append(time.perf_counter() - start)
    assert min(took) < 0.002
