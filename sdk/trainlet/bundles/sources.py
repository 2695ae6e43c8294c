"""What an analysis yields, and which module is whose: the standard library's, an installed one, trainlet's, or local."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainlet.bundles.origins import Origins
from trainlet.core.specs import Entry

OURS = frozenset({"trainlet", "trainlet_functions", "trainlet_pipelines", "trainlet_knative"})


@dataclass(frozen=True)
class Sources:
    """Files to ship, where to start, and what else is imported; `origins` when a module was written for it."""

    files: dict[str, bytes]
    entry: Entry
    imports: frozenset[str]
    versions: dict[str, str]
    origins: Origins | None = None


def whose(name: str) -> Literal["stdlib", "installed", "ours", "local", "unknown"]:
    """Say whose a top-level module is."""
    if name in OURS:
        return "ours"
    if name in sys.stdlib_module_names or name in sys.builtin_module_names:
        return "stdlib"
    path = location(name)
    if path is None:
        return "unknown"
    return "installed" if _is_installed(str(path)) else "local"


def location(name: str) -> Path | None:
    """Return the file of a top-level module or the `__init__` of a package; None when it is not found."""
    module = sys.modules.get(name)
    origin = getattr(module, "__file__", None)
    if origin is None:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return None
        if spec is None:
            return None
        origin = spec.origin or next(iter(spec.submodule_search_locations or []), None)
    return None if origin is None or origin in ("built-in", "frozen") else Path(origin).absolute()


@functools.lru_cache(maxsize=4096)
def _is_installed(path: str) -> bool:
    paths = sysconfig.get_paths()
    roots = {paths[kind] for kind in ("purelib", "platlib", "stdlib", "platstdlib")}
    return any(path.startswith(root + "/") for root in roots) or "/site-packages/" in path or "/dist-packages/" in path


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """Return the distributions (lower case) that provide the modules, with their versions."""
    found: dict[str, str] = {}
    for name in names:
        for distribution in _distributions().get(name, ())[:1]:
            found[distribution.lower()] = importlib.metadata.version(distribution)
    return found


@functools.cache
def _distributions() -> dict[str, list[str]]:
    return {name: list(found) for name, found in importlib.metadata.packages_distributions().items()}
