"""How long `import trainlet` takes beside `import kfp`, in fresh interpreters."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

ROUNDS = 7


def seconds(statement: str) -> float:
    """Return the median time of a fresh interpreter that runs the statement, less that of an empty one."""

    def once(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        return time.perf_counter() - start

    return median(once(statement) for _ in range(ROUNDS)) - median(once("pass") for _ in range(ROUNDS))


def measure(home: Path) -> dict[str, Any]:
    """Return milliseconds for trainlet, for the decorator in use, and for kfp."""
    ours = seconds("import trainlet")
    used = seconds("import trainlet as tl\n@tl.step(gpu='A100')\ndef f(x: int) -> int:\n    return x")
    peer = seconds("import kfp")
    return {
        "import_trainlet_ms": round(ours * 1e3, 1),
        "import_and_decorate_ms": round(used * 1e3, 1),
        "import_kfp_ms": round(peer * 1e3, 1),
        "ratio_to_kfp": round(ours / peer, 3),
    }
