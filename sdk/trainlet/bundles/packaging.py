"""A step in a module: its package is shipped as it is, a single file with the local modules that it imports."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trainlet.bundles.sources import Sources, location, versions_of, whose
from trainlet.core.errors import UserError
from trainlet.core.specs import Entry

MAX_BYTES = 20 * 1024 * 1024
SKIPPED = frozenset(
    {
        "__pycache__",
        "node_modules",
        "venv",
        "build",
        "dist",
    }
)
DATA_BYTES = 1024 * 1024
CODE = frozenset({".py", ".pyi"})


def package(function: Callable[..., Any], origin: Path) -> Sources:
    """Return the sources of a function that lives in an importable module."""
    module = function.__module__
    top = module.partition(".")[0]
    files: dict[str, bytes] = {}
    imports: set[str] = set()
    pending = [(top, origin if top == module else location(top) or origin)]
    seen = {top}
    while pending:
        name, path = pending.pop()
        shipped = dict(_files_of(name, path))
        files |= shipped
        for used in {one for content in shipped.items() for one in _imports(*content)}:
            if used in seen:
                continue
            seen.add(used)
            owner = whose(used)
            if owner == "local":
                found = location(used)
                if found is not None:
                    pending.append((used, found))
            elif owner == "installed":
                imports.add(used)
    return Sources(
        files, Entry(module=module, qualname=function.__qualname__), frozenset(imports), versions_of(imports)
    )


def local_modules(names: set[str]) -> tuple[dict[str, bytes], set[str]]:
    """Return the files of local modules and everything local they import, and the installed modules among all these."""
    files: dict[str, bytes] = {}
    imports: set[str] = set()
    pending, seen = list(names), set(names)
    while pending:
        name = pending.pop()
        owner = whose(name)
        if owner == "installed":
            imports.add(name)
        if owner != "local":
            continue
        found = location(name)
        if found is None:
            continue
        shipped = dict(_files_of(name, found))
        files |= shipped
        for used in {one for content in shipped.items() for one in _imports(*content)} - seen:
            seen.add(used)
            pending.append(used)
    return files, imports


def _files_of(name: str, origin: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (path in the bundle, content) of a module's file or of a whole package."""
    if origin.name != "__init__.py" and not origin.is_dir():
        yield f"{name}.py", _read(origin)
        return
    folder = origin if origin.is_dir() else origin.parent
    for path in _walk(folder):
        relative = path.relative_to(folder)
        if path.suffix in CODE or (path.stat().st_size <= DATA_BYTES and path.suffix not in (".so", ".pyc", ".pyd")):
            yield f"{name}/{relative.as_posix()}", _read(path)


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the files that may be code or its data: nothing hidden, no virtual environment, no output of a build."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_file():
            yield path
        elif path.is_dir() and not path.is_symlink() and not _is_skipped(path):
            yield from _walk(path)


def _is_skipped(folder: Path) -> bool:
    """Say whether a folder is no code; a subpackage may well be called `dist` or `build`."""
    if (folder / "pyvenv.cfg").is_file():
        return True
    return folder.name in SKIPPED and not (folder / "__init__.py").is_file()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}. It belongs to the code of a step.") from error


def _imports(path: str, content: bytes) -> frozenset[str]:
    return imported(content) if path.endswith(".py") else frozenset()


@functools.lru_cache(maxsize=4096)
def imported(content: bytes) -> frozenset[str]:
    """Return the top-level names of the modules that some source imports absolutely."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return frozenset()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return frozenset(names)
