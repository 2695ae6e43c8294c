"""Finding the pipeline that a person named: `FILE[:PIPELINE]`, with its parameters."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import TypeAdapter, ValidationError

from trainlet.cli import tracebacks
from trainlet.core import hints
from trainlet.core.errors import TrainletError, UserError
from trainlet.core.tags import parse_tags
from trainlet.pipelines import Pipeline
from trainlet.steps import Step

Target = Pipeline[Any, Any] | Step[Any, Any]


def load(target: str) -> Target:
    """Import the file and return its pipeline (or step); UserError names those that it has."""
    path_text, _, name = target.partition(":")
    module = _import(Path(path_text))
    pipelines = {key: value for key, value in vars(module).items() if isinstance(value, Pipeline)}
    steps = {key: value for key, value in vars(module).items() if isinstance(value, Step)}
    known: dict[str, Target] = {**steps, **pipelines}
    if name:
        if name in known:
            return known[name]
        near = difflib.get_close_matches(name, known, n=1)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        have = ", ".join([*pipelines, *steps]) or "none"
        raise UserError(f"{path_text} has no pipeline or step {name!r}.{meant} It has: {have}.")
    for some in (pipelines, steps):
        own = {key: value for key, value in some.items() if value.__module__ == module.__name__} or dict(some)
        if len(own) == 1:
            return next(iter(own.values()))
        if own:
            names = ", ".join(own)
            raise UserError(
                f"{path_text} has several; name one, such as {path_text}:{next(iter(own))}. It has: {names}."
            )
    raise UserError(f"{path_text} has no @tl.pipeline and no @tl.step.")


def steps(target: str) -> dict[str, Step[Any, Any]]:
    """Return the steps of `FILE[:NAME]` by the names of their functions: what its pipelines use, and the file's others.

    Raises UserError for two steps that would be one function, such as `train_model` and `train__model`.
    """
    if ":" in target:
        found = load(target)
        return {found.name: found} if isinstance(found, Step) else found.trace({}, resolve=False).steps
    module = _import(Path(target))
    own = [
        one for one in vars(module).values() if isinstance(one, Pipeline | Step) and one.__module__ == module.__name__
    ]
    named: dict[str, Step[Any, Any]] = {}
    for value in own:
        if isinstance(value, Pipeline):
            for step in value.trace({}, resolve=False).steps.values():
                _add(named, step, target)
    used = set(named)
    for value in own:
        if isinstance(value, Step) and value.name not in used:
            _add(named, value, target)
    if not named:
        raise UserError(f"{target} has no @tl.step.")
    return named


def pipelines(target: str) -> list[Pipeline[Any, Any]]:
    """Return the pipelines of `FILE[:NAME]`, each by its name once."""
    if ":" in target:
        found = load(target)
        return [found] if isinstance(found, Pipeline) else []
    module = _import(Path(target))
    own = [one for one in vars(module).values() if isinstance(one, Pipeline) and one.__module__ == module.__name__]
    return list({one.name: one for one in own}.values())


def _add(named: dict[str, Step[Any, Any]], step: Step[Any, Any], target: str) -> None:
    other = named.setdefault(step.name, step)
    if not other.same_as(step):
        raise UserError(
            f"{target}: {other.label} and {step.label} would both be the function {step.name!r}. "
            f'Name one of them: @tl.step(name="{step.name[:60]}-2").'
        )


def parameters(texts: Sequence[str], found: Target, *, complete: bool = True) -> dict[str, Any]:
    """Read `name=value` as the parameter's annotation says; without one, a JSON value or else a string.

    Raises UserError for an unknown name, a missing parameter (where it must be `complete`), or a value that does not fit.
    """
    known = dict(inspect.signature(found).parameters)
    known.pop(hints.context_parameter(inspect.unwrap(found)) or "", None)
    annotations = hints.annotations_of(inspect.unwrap(found))
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--param {text!r} is not name=value.")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            raise UserError(f"There is no parameter {name!r}.{meant} There are: {', '.join(known) or 'none'}.")
        values[name] = _value(name, value, annotations)
    if complete:
        _check_complete(known, values)
    return values


def tags(texts: Sequence[str]) -> dict[str, str]:
    """Read `name=text` into checked tags; raises UserError that says how to write one."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--tag {text!r} is not name=text, such as team=vision.")
        if name in found:
            raise UserError(f"--tag {name} is given twice. Remove one of them.")
        found[name] = value
    return parse_tags(found, "--tag ")


def _check_complete(known: Mapping[str, inspect.Parameter], values: Mapping[str, Any]) -> None:
    missing = [name for name, one in known.items() if one.default is one.empty and name not in values]
    if missing:
        raise UserError(f"Parameters without a value: {', '.join(missing)}. Pass --param {missing[0]}=...")


def _value(name: str, text: str, annotations: Mapping[str, Any]) -> Any:
    annotation = annotations.get(name, Any)
    if annotation is str:
        return text
    try:
        plain = json.loads(text)
    except ValueError:
        plain = text
    if annotation is Any or isinstance(annotation, str):
        return plain
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    except Exception:  # noqa: BLE001 - a type that pydantic does not know takes what was written
        return plain
    try:
        return adapter.validate_python(plain)
    except ValidationError as error:
        kind = getattr(annotation, "__name__", None) or str(annotation)
        raise UserError(f"--param {name}={text} does not fit {kind}: {error.errors()[0]['msg']}.") from None


def _import(path: Path) -> ModuleType:
    if not path.is_file():
        raise UserError(f"There is no file {str(path)!r}.")
    if path.suffix != ".py":
        raise UserError(f"{str(path)!r} is no Python file.")
    before = sys.modules.get(path.stem)
    if path.stem in sys.stdlib_module_names or (before is not None and not _same_file(before, path)):
        raise UserError(f"{path.name} has the name of a module that is imported already. Rename the file.")
    folder = str(path.parent.absolute())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(path.stem, path.absolute())
    if spec is None or spec.loader is None:
        raise UserError(f"{str(path)!r} cannot be imported. Give it a name that Python can import.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except TrainletError:
        raise
    except Exception as error:
        raise UserError(f"{path} cannot be imported.\n{tracebacks.text_of(error)}") from error
    return module


def _same_file(module: ModuleType, path: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).absolute() == path.absolute()
