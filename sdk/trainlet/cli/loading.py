"""Finding the pipeline that a person named: `FILE[:PIPELINE]`, with its parameters."""

from __future__ import annotations

import difflib
import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from trainlet.core.errors import UserError
from trainlet.pipelines import Pipeline
from trainlet.steps import Step


def load(target: str) -> Pipeline[Any, Any] | Step[Any, Any]:
    """Import the file and return its pipeline (or step); UserError names those that it has."""
    path_text, _, name = target.partition(":")
    module = _import(Path(path_text))
    pipelines = {key: value for key, value in vars(module).items() if isinstance(value, Pipeline)}
    steps = {key: value for key, value in vars(module).items() if isinstance(value, Step)}
    if name:
        found: Pipeline[Any, Any] | Step[Any, Any] | None = pipelines.get(name) or steps.get(name)
        if found is None:
            near = difflib.get_close_matches(name, [*pipelines, *steps], n=1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            raise UserError(f"{path_text} has no pipeline or step {name!r}.{meant} It has: {_names(pipelines, steps)}.")
        return found
    own: dict[str, Any] = {**pipelines} or {**steps}
    if len(own) == 1:
        only: Pipeline[Any, Any] | Step[Any, Any] = next(iter(own.values()))
        return only
    if not own:
        raise UserError(f"{path_text} has no @tl.pipeline and no @tl.step.")
    raise UserError(
        f"{path_text} has several; name one, such as {path_text}:{next(iter(own))}. It has: {', '.join(own)}."
    )


def parameters(texts: Sequence[str], known: Sequence[str]) -> dict[str, Any]:
    """Read `name=value`: a JSON value, or else a string. UserError for an unknown name."""
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--param {text!r} is not name=value.")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            raise UserError(f"There is no parameter {name!r}.{meant} There are: {', '.join(known) or 'none'}.")
        try:
            values[name] = json.loads(value)
        except ValueError:
            values[name] = value
    return values


def _names(pipelines: dict[str, Any], steps: dict[str, Any]) -> str:
    return ", ".join([*pipelines, *steps]) or "none"


def _import(path: Path) -> ModuleType:
    if not path.is_file():
        raise UserError(f"There is no file {str(path)!r}.")
    if path.suffix != ".py":
        raise UserError(f"{str(path)!r} is no Python file.")
    folder = str(path.parent.absolute())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(path.stem, path.absolute())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
