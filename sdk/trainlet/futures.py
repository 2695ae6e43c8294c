"""What a step returns while a pipeline is traced: a value that does not exist yet.

A `Future` can be passed on, indexed, compared and ordered; each of these makes an expression of `trainlet.core.graphs`.
Everything that would need the value now (`if`, `for`, an f-string, arithmetic) is a UserError that says what to use
instead, because the alternative is a pipeline that silently does something else than it says.

It must not know how the graph is built: the trace that owns a future is asked only whether it is still open.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, Generic, NoReturn, TypeVar

from trainlet import locations
from trainlet.core import graphs
from trainlet.core.durations import nearest
from trainlet.core.errors import UserError

if typing.TYPE_CHECKING:
    from trainlet.tracing import Trace

T_co = TypeVar("T_co", covariant=True)


class FutureAttributeError(UserError, AttributeError):
    """Raised for an attribute that the future value does not have, so that `hasattr` says no."""


class Future(Generic[T_co]):
    """The result of a step call inside a pipeline, a parameter, an item of `tl.each`, or a part of one of these."""

    __slots__ = ("_annotation", "_expression", "_label", "_scope", "_trace")

    def __init__(
        self, trace: Trace, expression: graphs.Expression, label: str, annotation: Any = Any, scope: str = "root"
    ) -> None:
        self._trace = trace
        self._expression = expression
        self._label = label
        self._annotation = annotation
        self._scope = scope

    def __repr__(self) -> str:
        return f"<future {self._label}>"

    # -- what works ----------------------------------------------------------------------------------------------

    def after(self, *others: Any) -> Future[T_co]:
        """Run this step only when the others have succeeded, without taking data from them; returns itself."""
        self._trace.order(self, others)
        return self

    def is_in(self, values: Any) -> Condition:
        """Make the condition that this value is one of `values` (a list, or the future of one)."""
        return self._compare("in", values)

    def __getitem__(self, key: Any) -> Future[Any]:
        if isinstance(key, Future):
            _refuse(self, "is indexed by another future", "Do the look-up inside a step.")
        if isinstance(key, bool) or not isinstance(key, (str, int)):
            _refuse(self, f"is indexed by {key!r}", 'Use a text key or a whole number, such as out["loss"] or out[0].')
        return self._part(key, element_type(self._annotation, key))

    def __getattr__(self, name: str) -> Future[Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        known = _fields_of(self._annotation)
        if known is None:
            type_name = _type_name(self._annotation)
            raise FutureAttributeError(
                f"{locations.caller()}: {self._label}.{name}: the fields of {type_name} are not known here. "
                f'Return a dataclass, named tuple or pydantic model with an annotation, use ["{name}"] on a '
                "dictionary, or read it inside a step."
            )
        if name not in known:
            raise FutureAttributeError(
                f"{locations.caller()}: {self._label} has no field {name!r}. {nearest(name, list(known))}"
            )
        return self._part(name, known[name])

    def __eq__(self, other: object) -> Condition:  # type: ignore[override]
        return self._compare("==", other)

    def __ne__(self, other: object) -> Condition:  # type: ignore[override]
        return self._compare("!=", other)

    def __lt__(self, other: Any) -> Condition:
        return self._compare("<", other)

    def __le__(self, other: Any) -> Condition:
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> Condition:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> Condition:
        return self._compare(">=", other)

    def __and__(self, other: Any) -> Condition:
        return self._compare("and", other)

    def __rand__(self, other: Any) -> Condition:
        return self._compare("and", other, swapped=True)

    def __or__(self, other: Any) -> Condition:
        return self._compare("or", other)

    def __ror__(self, other: Any) -> Condition:
        return self._compare("or", other, swapped=True)

    def __invert__(self) -> Condition:
        condition = graphs.Condition(operator="not", operands=(self._expression,))
        return Condition(self._trace, condition, f"not {self._label}", bool, self._scope)

    def _compare(self, operator: graphs.Operator, other: Any, swapped: bool = False) -> Condition:
        right = self._trace.expression(other, f"{self._label} {operator} ...")
        operands = (right, self._expression) if swapped else (self._expression, right)
        condition = graphs.Condition(operator=operator, operands=operands)
        other_label = other._label if isinstance(other, Future) else repr(other)
        scope = self._trace.inner_scope(self._scope, other._scope) if isinstance(other, Future) else self._scope
        return Condition(self._trace, condition, f"{self._label} {operator} {other_label}", bool, scope)

    def _part(self, key: str | int, annotation: Any) -> Future[Any]:
        expression = self._expression
        if isinstance(expression, (graphs.Output, graphs.Item, graphs.RunStatus)):
            part: graphs.Expression = expression.model_copy(update={"path": (*expression.path, key)})
        elif isinstance(expression, (graphs.Constant, graphs.ListOf, graphs.DictOf)):
            part = _known_part(self, expression, key)
        elif isinstance(expression, graphs.Collected):
            if not isinstance(key, int):
                _refuse(self, f"is indexed by {key!r}", "It is a list: use a whole number, or take the part in a step.")
            _refuse(self, "is indexed", "Pass the whole list to a step and take the element there.")
        else:
            _refuse(self, f"is asked for its part {key!r}", "Pass it to a step that returns the part.")
        label = f"{self._label}[{key!r}]" if isinstance(key, int) else f"{self._label}.{key}"
        return Future(self._trace, part, label, annotation, self._scope)

    # -- what needs the value, and so is refused -----------------------------------------------------------------

    def __bool__(self) -> NoReturn:
        _refuse(
            self,
            "is used as a truth value (if, while, and, or, not, assert, in)",
            "Use `with tl.when(condition):`, and `&`, `|`, `~` or .is_in([...]) to build the condition.",
        )

    def __iter__(self) -> NoReturn:
        _refuse(self, "is looped over or unpacked", "Use tl.each(values, step), or index it: out[0], out[1].")

    def __len__(self) -> NoReturn:
        _refuse(self, "is asked for its length", "Pass it to a step that returns the length.")

    def __contains__(self, item: object) -> NoReturn:
        _refuse(self, "is searched with `in`", "Use tl.when with a step that returns whether it is there.")

    def __hash__(self) -> int:
        _refuse(self, "is used as a dictionary key or put into a set", "Use text keys; futures may be the values.")

    def __str__(self) -> str:
        _refuse(self, "is turned into text (str, print, %)", "Pass it to a step that makes the text.")

    def __format__(self, spec: str) -> str:
        _refuse(self, "is used in an f-string or str.format", "Pass it to a step that makes the text.")

    def __int__(self) -> int:
        _refuse(self, "is turned into an int", "Pass it to a step that converts it.")

    def __float__(self) -> float:
        _refuse(self, "is turned into a float", "Pass it to a step that converts it.")

    def __index__(self) -> int:
        _refuse(self, "is used as an index or in range()", "Use tl.each(values, step), or index inside a step.")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(self, "is called", "Call methods of the value inside a step.")

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        _refuse(self, "is assigned to", "Return the changed value from a step.")

    def __reduce__(self) -> NoReturn:
        _refuse(self, "is copied or pickled", "Pass it straight to a step.")


class Condition(Future[bool]):
    """A condition over futures, for `tl.when`, or to pass to a step as a bool."""

    __slots__ = ()
    __hash__ = Future.__hash__


def _arithmetic(symbol: str) -> Any:
    def refuse(self: Future[Any], *others: Any) -> NoReturn:
        _refuse(self, f"is used in arithmetic ({symbol})", "Pass it to a step that computes the result.")

    return refuse


for _method, _symbol in {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "lshift": "<<", "rshift": ">>", "xor": "^",
}.items():  # fmt: skip
    setattr(Future, f"__{_method}__", _arithmetic(_symbol))
    setattr(Future, f"__r{_method}__", _arithmetic(_symbol))
for _method, _symbol in {"neg": "-", "pos": "+", "abs": "abs", "round": "round"}.items():
    setattr(Future, f"__{_method}__", _arithmetic(_symbol))


def _refuse(future: Future[Any], what: str, fix: str) -> NoReturn:
    raise UserError(f"{locations.caller()}: {future._label} {what}, but it has no value until the run. {fix}")


def _known_part(
    future: Future[Any], expression: graphs.Constant | graphs.ListOf | graphs.DictOf, key: str | int
) -> graphs.Expression:
    """Take a part of what is known while tracing: an argument of a nested pipeline, or what it returned."""
    whole: Any = expression.value if isinstance(expression, graphs.Constant) else expression.items
    try:
        part = whole[key]
    except (KeyError, IndexError, TypeError):
        raise UserError(f"{locations.caller()}: {future._label} has no part {key!r}.") from None
    return graphs.Constant(value=part) if isinstance(expression, graphs.Constant) else part


def _fields_of(annotation: Any) -> dict[str, Any] | None:
    """Return the fields of a dataclass, named tuple, TypedDict or pydantic model; None when they are not known."""
    kind = typing.get_origin(_unwrap(annotation)) or _unwrap(annotation)
    if not isinstance(kind, type):
        return None
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        names = list(kind._fields)
    elif hasattr(kind, "model_fields"):
        names = list(kind.model_fields)
    else:
        return None
    hints = _hints(kind)
    return {name: hints.get(name, Any) for name in names}


def element_type(annotation: Any, key: str | int) -> Any:
    """Return the annotation of a part of a value; Any when it is not known."""
    annotation = _unwrap(annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is tuple and isinstance(key, int) and arguments:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return arguments[0]
        return arguments[key] if -len(arguments) <= key < len(arguments) else Any
    if origin in (list, set, frozenset) and arguments:
        return arguments[0]
    if origin is dict and len(arguments) == 2:
        return arguments[1]
    if typing.is_typeddict(annotation):
        return _hints(annotation).get(str(key), Any)
    return Any


def _unwrap(annotation: Any) -> Any:
    """Drop Annotated and Optional."""
    if hasattr(annotation, "__metadata__"):
        return _unwrap(annotation.__origin__)
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        rest = [one for one in typing.get_args(annotation) if one is not type(None)]
        return _unwrap(rest[0]) if len(rest) == 1 else Any
    return annotation


def _hints(kind: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except (NameError, TypeError, AttributeError):
        return {}


def _type_name(annotation: Any) -> str:
    if annotation is Any:
        return "a value without an annotation"
    return getattr(annotation, "__name__", None) or str(annotation)
