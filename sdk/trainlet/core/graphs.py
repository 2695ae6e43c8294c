"""A pipeline as data: a tree of scopes that hold tasks, joined by expressions.

The SDK traces a pipeline function into a `Graph`; the local runner walks it, the KFP compiler translates it, and the
training API stores it with the run, so that a run can be resumed by a process that does not have the source code.

A scope is `root`, `when` (run only if the condition holds), `each` (one instance per item) or `exit` (run at the end,
whatever happened). Scopes nest by `parent`. Names are unique in a graph: node ids are what people read in logs.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from trainlet.core.models import Value
from trainlet.core.specs import Name, Sha256

Operator = Literal["==", "!=", "<", "<=", ">", ">=", "in", "not in", "truthy", "not", "and", "or"]


class Constant(Value):
    """A constant, already encoded (`trainlet.core.codecs`)."""

    kind: Literal["constant"] = "constant"
    value: Any


class Parameter(Value):
    """A parameter of the pipeline."""

    kind: Literal["parameter"] = "parameter"
    name: str


class Output(Value):
    """The result of a node, or a part of it: `path` holds keys, indices and field names."""

    kind: Literal["output"] = "output"
    node: str
    path: tuple[str | int, ...] = ()


class Item(Value):
    """The current item of an enclosing `each` scope, or a part of it."""

    kind: Literal["item"] = "item"
    scope: str
    path: tuple[str | int, ...] = ()


class Collected(Value):
    """The list of what `value` is in each instance of an `each` scope, in the order of the items."""

    kind: Literal["collected"] = "collected"
    scope: str
    value: Expression


class ListOf(Value):
    """A list whose elements are expressions."""

    kind: Literal["list"] = "list"
    items: tuple[Expression, ...]


class DictOf(Value):
    """A dictionary with string keys whose values are expressions."""

    kind: Literal["dict"] = "dict"
    items: dict[str, Expression]


class RunStatus(Value):
    """Inside an `exit` scope: the outcome of the run so far (`{"state": ..., "error": ..., "failed": [...]}`)."""

    kind: Literal["status"] = "status"
    path: tuple[str | int, ...] = ()


class Condition(Value):
    """An operator over expressions; evaluated by the runner, never by `eval`."""

    kind: Literal["condition"] = "condition"
    operator: Operator
    operands: tuple[Expression, ...]


Expression = Annotated[
    Constant | Parameter | Output | Item | Collected | ListOf | DictOf | RunStatus | Condition,
    Field(discriminator="kind"),
]


class Node(Value):
    """One call of a step. `after` lists nodes that must have succeeded before, beside those that inputs name."""

    id: str
    function: Name
    digest: Sha256
    display: str = ""
    scope: str = "root"
    inputs: dict[str, Expression] = {}
    after: tuple[str, ...] = ()


class Scope(Value):
    """A part of the graph that runs conditionally, repeatedly, or at the end."""

    id: str
    kind: Literal["when", "each", "exit"]
    parent: str = "root"
    condition: Condition | None = None
    items: Expression | None = None
    max_parallel: int | None = Field(default=None, ge=1, le=1_000_000)
    after: tuple[str, ...] = ()


class Group(Value):
    """What a pipeline inside another recorded: shown as one box, run as if it were not there.

    `parts` are the nodes and scopes directly in it; all of them are in the scope `scope`. `parent` is the group around
    it in that same scope.
    """

    id: str
    pipeline: str
    description: str = ""
    scope: str = "root"
    parent: str | None = None
    parts: tuple[str, ...] = ()


class Graph(Value):
    """A whole pipeline. `parameters` maps names to encoded defaults (absent: required).

    `cache` says whether results of earlier runs may be used again.
    """

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    required: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    scopes: tuple[Scope, ...] = ()
    groups: tuple[Group, ...] = ()
    outputs: dict[str, Expression] = {}
    cache: bool = False

    def node(self, node_id: str) -> Node:
        """Return the node with this id; raises KeyError."""
        for node in self.nodes:
            if node.id == node_id:
                return node
        raise KeyError(node_id)
