"""What a step's function looks like from outside: its parameters, its annotations, and which of them is the context.

A step is called by name on the worker, so positional-only and starred positional parameters cannot be served. The
parameter that is annotated `tl.Context` is filled in by trainlet and is no input.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainlet import locations
from trainlet.core.durations import nearest
from trainlet.core.errors import UserError
from trainlet.core.hints import context_parameter


def check_function(function: Any, decorator: str) -> Callable[..., Any]:
    """Return the function if it can be a step or pipeline; raises UserError with the corrected code."""
    if isinstance(function, (staticmethod, classmethod)):
        raise UserError(
            f"@{decorator} is above @{type(function).__name__}. "
            f"Move the function out of its class and write @{decorator} on it."
        )
    if inspect.isclass(function):
        raise UserError(f"{_at(function)}@{decorator} is on the class {function.__name__}. Put it on a function.")
    if inspect.ismethod(function):
        raise UserError(
            f"{_at(function)}@{decorator} is on the bound method {function.__qualname__}. "
            f"Write a plain function that makes the object and calls .{function.__name__}(...) on it."
        )
    if isinstance(function, functools.partial):
        raise UserError(f"@{decorator} is on a functools.partial. Write a def that passes those arguments.")
    if not inspect.isfunction(function):
        raise UserError(f"@{decorator} needs a function, not {function!r}. Write a def and decorate that.")
    name, at = function.__name__, _at(function)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise UserError(f"{at}{name} is `async def`. Write `def {name}(...)` and call asyncio.run(...) inside it.")
    if inspect.isgeneratorfunction(function):
        raise UserError(f"{at}{name} is a generator (it has `yield`). Collect the values and `return` the list.")
    if name == "<lambda>":
        raise UserError(f"{at}@{decorator} is on a lambda. Write it as a `def` with a name.")
    parameters = list(inspect.signature(function).parameters.values())
    outer = function.__qualname__.rpartition(".")[0]
    if parameters and parameters[0].name in ("self", "cls") and outer and not outer.endswith("<locals>"):
        raise UserError(
            f"{at}{function.__qualname__} is a method: its object cannot travel. "
            f"Write a function outside of the class that takes what it needs."
        )
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise UserError(
                f"{at}{name}(*{parameter.name}): arguments travel by name. Write `{parameter.name}: list[...]`."
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise UserError(f"{at}{name}({parameter.name}, /): arguments travel by name. Remove the `/`.")
    return function


def _at(function: Any) -> str:
    place = locations.of(getattr(function, "__func__", function))
    return f"{place}: " if place else ""


class Signature:
    """The inputs of a step or pipeline: the function's parameters without the context."""

    def __init__(self, function: Callable[..., Any], label: str) -> None:
        self.function = function
        self.label = label
        self.context = context_parameter(function)
        full = inspect.signature(function)
        inputs = [one for name, one in full.parameters.items() if name != self.context]
        self._signature = full.replace(parameters=inputs)
        self.parameters: Mapping[str, inspect.Parameter] = self._signature.parameters

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the given arguments by name, without defaults; UserError names what is missing or misspelt."""
        if self.context is not None and self.context in kwargs:
            at = locations.caller()
            raise UserError(f"{at}: {self.label}({self.context}=...) is filled in by trainlet; omit it.")
        try:
            bound = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise UserError(f"{locations.caller()}: {self._explain(args, kwargs, error)}") from None
        flat: dict[str, Any] = {}
        for name, value in bound.items():
            if self.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                flat.update(value)
            else:
                flat[name] = value
        return flat

    def fits(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Say whether these arguments are complete without a context."""
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError:
            return False
        return True

    def _explain(self, args: Sequence[Any], kwargs: Mapping[str, Any], error: TypeError) -> str:
        defined = f"It is {self.label}{self._signature_text()} at {locations.of(self.function)}."
        names = [n for n, one in self.parameters.items() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        open_ended = len(names) < len(self.parameters)
        for name in kwargs:
            if name not in names and not open_ended:
                hint = nearest(name, names) if names else "It takes no arguments."
                return f"{self.label}() has no argument {name!r}. {hint} {defined}"
        positional = [n for n in names if self.parameters[n].kind is not inspect.Parameter.KEYWORD_ONLY]
        if len(args) > len(positional):
            takes = f"{len(positional)} positional argument{'' if len(positional) == 1 else 's'}"
            return f"{self.label}() takes {takes} and got {len(args)}. {defined}"
        given = {*positional[: len(args)], *kwargs}
        missing = [n for n in names if n not in given and self.parameters[n].default is inspect.Parameter.empty]
        if missing:
            return f"{self.label}() misses {', '.join(repr(n) for n in missing)}. {defined}"
        return f"{self.label}(): {error}. {defined}"

    def _signature_text(self) -> str:
        bare = [one.replace(annotation=inspect.Parameter.empty) for one in self.parameters.values()]
        return str(inspect.Signature(bare))
