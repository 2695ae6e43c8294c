"""Build bundles in scripts of their own, and run bundles where nothing but the bundle can be imported."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainlet.core import bundles as format_

BUILD = """

if __name__ == "__main__":
    import json, pathlib, sys
    from trainlet import bundles as _bundles
    from trainlet.core.errors import UserError as _UserError
    try:
        _bundle = _bundles.build(getattr(TARGET, "__wrapped__", TARGET))
        pathlib.Path(sys.argv[1]).write_bytes(_bundle.data)
        _text = _bundle.files.get("step_training.py", "").splitlines()
        _told = {n: _bundle.origins.where(f"step_training.py:{n}", lambda path, line: f"{pathlib.Path(path).name}:{line}")
                 for n in range(1, len(_text) + 1) if _bundle.origins}
        _known = {n: place for n, place in _told.items() if not place.startswith("step_")}
        print(json.dumps({"digest": _bundle.digest, "files": _bundle.files, "imports": _bundle.imports, "origins": _known}))
    except _UserError as error:
        print(json.dumps({"error": str(error)}))
"""
CALL = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
entry = json.loads(sys.argv[2])
target = importlib.import_module(entry["module"])
for part in entry["qualname"].split("."):
    target = getattr(target, part)
print(json.dumps(getattr(target, "__wrapped__", target)(*json.loads(sys.argv[3]))))
"""


class Script:
    """A script that builds the bundle of one of its functions when it is run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "bundle.zip"

    def build(self, source: str, target: str, name: str = "training.py", **beside: str) -> dict[str, Any]:
        """Run the script and return what it says: digest, files and imports, or the error."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for module, text in beside.items():
            (self.folder / f"{module}.py").write_text(textwrap.dedent(text))
        path = self.folder / name
        path.write_text(textwrap.dedent(source) + BUILD.replace("TARGET", target))
        done = subprocess.run(
            [sys.executable, str(path), str(self.data)], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return said

    def line(self, text: str, name: str = "training.py") -> int:
        """Return the number of the first line of the script that has this text."""
        lines = (self.folder / name).read_text().splitlines()
        return next(number for number, line in enumerate(lines, 1) if text in line)


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path / "user")


@pytest.fixture
def call(tmp_path: Path) -> Callable[..., Any]:
    """Run the entry of a bundle in a clean process; without `site` not even trainlet can be imported."""

    def run(data: bytes, *args: Any, site: bool = False) -> Any:
        target = tmp_path / "unpacked" / format_.digest_of(data)
        target.parent.mkdir(exist_ok=True)
        manifest = format_.extract(data, format_.digest_of(data), target)
        flags = ["-I"] if site else ["-I", "-S"]
        words = [str(target), manifest.entry.model_dump_json(), json.dumps(args)]
        done = subprocess.run(
            [sys.executable, *flags, "-c", CALL, *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=target.parent,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run
