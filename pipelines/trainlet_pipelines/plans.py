"""What a graph says about order, worked out once before anything runs: who waits for whom, and whether it can end.

A graph may come from a file or from another version of trainlet, so nothing about it is taken for granted: unknown names,
values that are not visible where they are used, and cycles are a UserError here, never a run that hangs.
"""

from __future__ import annotations

import difflib
import graphlib
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from trainlet.core import graphs
from trainlet.core.errors import UserError

Part = graphs.Node | graphs.Scope
ROOT = "root"


class Plan:
    """The tables of one graph. A *part* is a node or a scope; parts of one scope are neighbors.

    `parts` lists the parts directly inside a scope, `needs` the parts anywhere that one depends on (with whether it
    needs their value), `waiters` the neighbors that look at a part when it settles, `around` the scopes around a part,
    the root first.
    """

    def __init__(self, graph: graphs.Graph) -> None:
        self.graph = graph
        self.nodes = {node.id: node for node in graph.nodes}
        self.scopes = {scope.id: scope for scope in graph.scopes}
        self.parts: dict[str, list[Part]] = {ROOT: []}
        self.around: dict[str, tuple[str, ...]] = {}
        self.needs: dict[str, list[tuple[str, bool]]] = {}
        self.waiters: dict[str, list[str]] = {}
        self._place()
        self._check_visible()
        for part in self._all():
            self.needs[part.id] = self._needs_of(part)
            for needed, _ in self.needs[part.id]:
                neighbor = self.neighbor(needed, self.around[part.id][-1])
                if neighbor is not None:
                    self.waiters.setdefault(neighbor, []).append(part.id)
        self._check_order()

    def check_params(self, params: Mapping[str, Any]) -> None:
        """Raise UserError when a parameter that the graph uses has no value."""
        used = dict.fromkeys(self.graph.required)
        for expression in (*self.graph.outputs.values(), *(one for part in self._all() for one in expressions(part))):
            used |= dict.fromkeys(leaf.name for leaf in _leaves(expression) if isinstance(leaf, graphs.Parameter))
        missing = [name for name in used if name not in params]
        if missing:
            raise UserError(f"Pipeline {self.graph.name!r} needs {', '.join(missing)}. Pass {missing[0]}=...")

    def neighbor(self, needed: str, scope: str) -> str | None:
        """Return the part of `scope` that is, or holds, the needed one; None when it is further outside."""
        chain = (*self.around[needed], needed)
        return chain[chain.index(scope) + 1] if scope in chain[:-1] else None

    # -- tables

    def _all(self) -> list[Part]:
        return [*self.graph.nodes, *self.graph.scopes]

    def _place(self) -> None:
        """Put every part into its scope; refuse names that are unknown or used twice, and scopes without an end."""
        seen: set[str] = {ROOT}
        for part in self._all():
            if part.id in seen:
                self._refuse(f"has two parts named {part.id!r}")
            seen.add(part.id)
            self.parts.setdefault(part.id, []) if isinstance(part, graphs.Scope) else None
        for part in self._all():
            scope = part.scope if isinstance(part, graphs.Node) else part.parent
            if scope not in self.parts:
                self._refuse(f"puts {part.id!r} into {scope!r}, which is no scope of it")
            self.parts[scope].append(part)
        for part in self._all():
            self.around[part.id] = self._chain(part)
        for one in self.graph.scopes:
            if one.kind == "exit" and one.parent != ROOT:
                self._refuse(f"has the exit scope {one.id!r} inside {one.parent!r}; it belongs to the whole pipeline")
            if (one.kind == "when") != (one.condition is not None) or (one.kind == "each") != (one.items is not None):
                self._refuse(f"has the {one.kind} scope {one.id!r} without what it needs, or with what it ignores")

    def _chain(self, part: Part) -> tuple[str, ...]:
        scope = part.scope if isinstance(part, graphs.Node) else part.parent
        chain = [scope]
        while scope != ROOT:
            scope = self.scopes[scope].parent
            if scope in chain:
                self._refuse(f"has scopes that are inside of each other: {', '.join(chain)}")
            chain.insert(0, scope)
        return tuple(chain)

    def _inside(self, scope: str) -> Iterator[Part]:
        for part in self.parts.get(scope, ()):
            yield part
            yield from self._inside(part.id)

    def _needs_of(self, part: Part) -> list[tuple[str, bool]]:
        """Return what a part needs from outside of itself; a scope needs what the parts inside it need."""
        inside = {one.id for one in self._inside(part.id)}
        found: dict[str, bool] = {}
        for one in (part, *self._inside(part.id)):
            for needed in one.after:
                if needed not in inside:
                    found.setdefault(needed, False)
            for expression in expressions(one):
                for needed in _sources(expression):
                    if needed not in inside:
                        found[needed] = True
        return list(found.items())

    # -- checks

    def _check_visible(self) -> None:
        for part in self._all():
            chain = self.around[part.id]
            for needed in part.after:
                self._check_reach(part.id, needed, chain, value=False)
            for expression in expressions(part):
                self._check_expression(part.id, expression, chain)
        for name, expression in self.graph.outputs.items():
            self._check_expression(f"output {name}", expression, (ROOT,))

    def _check_expression(self, user: str, expression: graphs.Expression, chain: tuple[str, ...]) -> None:
        for leaf in _leaves(expression, collected=False):
            match leaf:
                case graphs.Output(node=node):
                    if node in self.scopes:
                        self._refuse(f"uses the scope {node!r} in {user!r} as if it were a step")
                    self._check_reach(user, node, chain, value=True)
                case graphs.Item(scope=scope):
                    if scope not in chain or self.scopes[scope].kind != "each":
                        self._refuse(f"uses the item of {scope!r} in {user!r}, which is not inside of it")
                case graphs.RunStatus():
                    if not any(self._kind(scope) == "exit" for scope in chain):
                        self._refuse(f"uses the run's status in {user!r}, which is not inside an exit scope")
                case graphs.Collected(scope=scope, value=value):
                    if self._kind(scope) != "each" or self.scopes[scope].parent not in chain:
                        self._refuse(f"collects {scope!r} in {user!r}, which is no each that can be seen there")
                    self._check_expression(user, value, (*self.around[scope], scope))
                case _:
                    continue

    def _check_reach(self, user: str, needed: str, chain: tuple[str, ...], *, value: bool) -> None:
        if needed not in self.around:
            near = difflib.get_close_matches(needed, self.around, n=1)
            self._refuse(
                f"has {user!r} depend on {needed!r}, which it does not have",
                f"Did you mean {near[0]!r}?" if near else "",
            )
        for scope in (*self.around[needed], needed):
            kind = self._kind(scope)
            if scope in chain:
                continue
            if kind == "exit":
                self._refuse(f"has {user!r} depend on {needed!r}, which runs at the end only")
            if kind == "each" and value and needed in self.nodes:
                self._refuse(
                    f"uses {needed!r} in {user!r}, outside of {scope!r} that repeats it", "Collect it instead."
                )

    def _check_order(self) -> None:
        """Refuse a cycle. A part ends after what it needs and, if it is a scope, after the parts inside it."""
        sorter: graphlib.TopologicalSorter[str] = graphlib.TopologicalSorter()
        for part in self._all():
            sorter.add(part.id, *(one.id for one in self.parts.get(part.id, ())))
            for needed, _ in self.needs[part.id]:
                for scope in reversed(self.around[part.id]):
                    neighbor = self.neighbor(needed, scope)
                    if neighbor is not None:
                        sorter.add(part.id, neighbor)
                        break
        try:
            sorter.prepare()
        except graphlib.CycleError as error:
            self._refuse(f"has a cycle: {' -> '.join(reversed(error.args[1]))}", "Remove one of these dependencies.")

    def _kind(self, scope: str) -> str:
        return self.scopes[scope].kind if scope in self.scopes else ""

    def _refuse(self, what: str, fix: str = "") -> NoReturn:
        raise UserError(f"Pipeline {self.graph.name!r} {what}. {fix}".rstrip())


def expressions(part: Part) -> list[graphs.Expression]:
    """Return the expressions that a part evaluates before it starts."""
    if isinstance(part, graphs.Node):
        return list(part.inputs.values())
    return [one for one in (part.condition, part.items) if one is not None]


def _leaves(expression: graphs.Expression, *, collected: bool = True) -> Iterator[graphs.Expression]:
    """Yield the parts of an expression that hold no others; a `Collected` too, and with `collected` what it collects."""
    match expression:
        case graphs.ListOf(items=several) | graphs.Condition(operands=several):
            for one in several:
                yield from _leaves(one, collected=collected)
        case graphs.DictOf(items=mapping):
            for one in mapping.values():
                yield from _leaves(one, collected=collected)
        case graphs.Collected(value=value):
            yield expression
            if collected:
                yield from _leaves(value)
        case _:
            yield expression


def _sources(expression: graphs.Expression) -> Iterator[str]:
    """Yield the parts whose end an expression waits for."""
    for leaf in _leaves(expression):
        if isinstance(leaf, graphs.Output):
            yield leaf.node
        elif isinstance(leaf, graphs.Collected):
            yield leaf.scope
