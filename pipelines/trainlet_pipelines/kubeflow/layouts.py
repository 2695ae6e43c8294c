"""Which parts of a graph are together on KFP's page: a pipeline inside another is a box, unless that makes a cycle.

A box waits for all that its parts need, so two pipelines that feed each other step by step cannot both be one. What has
to give way is laid open again: its steps are then where it was.
"""

from __future__ import annotations

import graphlib
from collections.abc import Iterator

from trainlet.core import graphs
from trainlet.core.errors import UserError
from trainlet_pipelines.kubeflow import wiring

Part = graphs.Node | graphs.Scope | graphs.Group
Level = tuple[str, str | None]
"""A scope, and the box in it, or None for what is in no box."""


class Layout:
    """The boxes of a graph, and what is directly in each. Raises UserError for a cycle."""

    def __init__(self, graph: graphs.Graph) -> None:
        self._graph = graph
        self.boxes: dict[str, graphs.Group] = {one.id: one for one in graph.groups}
        while True:
            self._place()
            stuck = [found for level in self._levels for found in self._stuck(level)]
            if not stuck:
                break
            box = next((one for one in stuck if isinstance(one, graphs.Group)), None)
            if box is None:
                names = ", ".join(part.id for part in stuck)
                raise UserError(f"Pipeline {graph.name!r} has a cycle through {names}.")
            del self.boxes[box.id]

    def members(self, scope: str, box: str | None = None) -> list[Part]:
        """Return the parts directly in a scope, or directly in a box of it."""
        return list(self._levels.get((scope, box), ()))

    def inside(self, part: Part) -> Iterator[Part]:
        """Yield all parts inside a part, at any depth."""
        if isinstance(part, graphs.Node):
            return
        level = (part.scope, part.id) if isinstance(part, graphs.Group) else (part.id, None)
        for one in self._levels.get(level, ()):
            yield one
            yield from self.inside(one)

    def wanted(self, part: Part) -> set[str]:
        """Return the nodes outside of a part that it waits for."""
        parts = [part, *self.inside(part)]
        own = {one.id for one in parts}
        found = {before for one in parts for before in after(one)}
        for one in parts:
            for leaf in wiring.leaves_of(one):
                if isinstance(leaf, graphs.Output):
                    found.add(leaf.node.partition(".")[0])
        return found - own

    def innermost(self) -> list[graphs.Group]:
        """Return the boxes, each after those inside of it."""
        ordered: list[graphs.Group] = []
        for box in self.boxes.values():
            for one in (*self.inside(box), box):
                if isinstance(one, graphs.Group) and one not in ordered:
                    ordered.append(one)
        return sorted(ordered, key=lambda one: sum(isinstance(part, graphs.Group) for part in self.inside(one)))

    def _place(self) -> None:
        owner = {part: box.id for box in self._graph.groups for part in box.parts}
        parents = {box.id: box.parent for box in self._graph.groups}

        def kept(box: str | None) -> str | None:
            while box is not None and box not in self.boxes:
                box = parents.get(box)
            return box

        self._levels: dict[Level, list[Part]] = {}
        placed: list[graphs.Node | graphs.Scope] = [*self._graph.nodes, *self._graph.scopes]
        for part in placed:
            if isinstance(part, graphs.Scope) and part.kind == "exit":
                continue
            scope = part.scope if isinstance(part, graphs.Node) else part.parent
            self._levels.setdefault((scope, kept(owner.get(part.id))), []).append(part)
        for box in self._graph.groups:
            if box.id in self.boxes:
                self._levels.setdefault((box.scope, kept(box.parent)), []).append(box)
        empty = [one for one in self.boxes.values() if not any(isinstance(x, graphs.Node) for x in self.inside(one))]
        for box in empty:
            del self.boxes[box.id]
            for parts in self._levels.values():
                parts[:] = [one for one in parts if one is not box]
        for end in self._graph.scopes:
            if end.kind == "exit":  # what runs at the end is a box of the scope's own name
                self._levels[end.id, end.id] = self._levels.get((end.id, None), [])

    def _stuck(self, level: Level) -> list[Part]:
        """Return the parts of a level that wait for each other."""
        parts = self._levels[level]
        home = {one.id: part.id for part in parts for one in (part, *self.inside(part))}
        needs = {part.id: {home[one] for one in self.wanted(part) if one in home} for part in parts}
        order = graphlib.TopologicalSorter(needs)
        try:
            order.prepare()
        except graphlib.CycleError as error:
            stuck = set(error.args[1])
            return [part for part in parts if part.id in stuck]
        return []


def after(part: Part) -> tuple[str, ...]:
    """Return what a part was told to wait for."""
    return () if isinstance(part, graphs.Group) else part.after
