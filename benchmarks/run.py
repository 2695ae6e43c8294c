"""Run every measurement and print one JSON document; `make bench` also writes it to benchmarks/results.json.

Each module beside this one measures one thing and returns a flat dictionary. Where a peer exists it is measured in the
same run, and the ratio is what counts: machines differ, ratios travel.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PARTS = ("imports", "graphs", "compile", "dispatch", "waiting", "api", "metering")


def commit() -> str:
    """Return the commit that is measured, marked when the tree has changes."""
    git = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()


def stop_platform(home: Path) -> None:
    """End the embedded platform of a home and wait until it is gone."""
    try:
        pid = int(json.loads((home / "platform.json").read_text())["pid"])
        os.kill(pid, signal.SIGTERM)
    except (OSError, ValueError):
        return
    deadline = time.monotonic() + 40
    while (home / "platform.json").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)


def main() -> None:
    """Measure what was asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    options = parser.parse_args()
    sys.path.insert(0, str(HERE))
    results: dict[str, Any] = {
        "commit": commit(),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
    }
    for part in options.parts:
        with tempfile.TemporaryDirectory(prefix="trainlet-bench-", ignore_cleanup_errors=True) as home:
            os.environ["TRAINLET_HOME"] = home
            print(f"measuring {part} ...", file=sys.stderr, flush=True)
            results[part] = importlib.import_module(f"measure_{part}").measure(Path(home))
            stop_platform(Path(home))
    text = json.dumps(results, indent=2)
    print(text)
    options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
