"""What a function's annotations mean: resolved where they can be, and which parameter is the context.

The decorator and the worker's child ask the same question, so that what is injected is never what counts as an input.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

from trainlet.core.contexts import Context

_CONTEXT_NAMES = ("Context", "tl.Context", "trainlet.Context", "contexts.Context")


def annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations by name, each resolved if it can be; one that cannot be stays a string."""
    raw = dict(getattr(function, "__annotations__", {}))
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError):
        pass
    found: dict[str, Any] = {}
    for name, annotation in raw.items():
        holder = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            names = getattr(function, "__globals__", {})
            found[name] = typing.get_type_hints(holder, globalns=names, include_extras=True)[name]
        except (NameError, TypeError, AttributeError, SyntaxError):
            found[name] = annotation
    return found


def context_parameter(function: Callable[..., Any]) -> str | None:
    """Return the name of the parameter annotated `tl.Context`, or None."""
    hints = annotations_of(function)
    for name in inspect.signature(function).parameters:
        annotation = hints.get(name)
        if annotation is Context or (isinstance(annotation, str) and annotation.strip("'\" ") in _CONTEXT_NAMES):
            return name
    return None
