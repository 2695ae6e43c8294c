"""Making the triggers of pipelines known to the training API: what is new, what changes, what is gone.

A trigger is registered with the whole traced program, so that nothing of the author's machine is needed when it fires.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainlet import sessions, triggers
from trainlet.client.triggers import Triggers
from trainlet.core import codecs
from trainlet.core.triggers import Program, Schedule, Subscription, TriggerView, Watch
from trainlet.pipelines import Pipeline


def register(
    session: sessions.Session, pipelines: Sequence[Pipeline[Any, Any]], *, dry_run: bool = False
) -> dict[str, list[str]]:
    """Register the triggers of pipelines and remove those that they do not have any more; returns what changes, by name.

    The functions of the pipelines must be registered already.
    """
    api = Triggers(session.client)
    before = {view.name: view for view in api.all()}
    changes: dict[str, list[str]] = {}
    for pipeline in pipelines:
        wanted = triggers.named(pipeline)
        program = _program(session, pipeline) if wanted else None
        for name, trigger in wanted.items():
            assert program is not None
            spec = trigger.spec(program)
            changes[name] = _changes(api, before.get(name), spec)
            if not dry_run:
                api.put(name, spec)
        for view in before.values():
            if view.pipeline == pipeline.name and view.name not in wanted:
                changes[view.name] = [f"removed: {pipeline.name} does not have it any more"]
                if not dry_run:
                    api.delete(view.kind, view.name)
    return changes


def watches(pipelines: Sequence[Pipeline[Any, Any]]) -> list[Watch]:
    """Return what a cluster is told of the triggers of pipelines, as the training API will tell it."""
    from trainlet_functions.triggers import watches as compiler

    found = [
        compiler.watch(name, trigger.spec(Program(pipeline=pipeline.name, graph={})))
        for pipeline in pipelines
        for name, trigger in triggers.named(pipeline).items()
    ]
    return [one for one in found if one is not None]


def _program(session: sessions.Session, pipeline: Pipeline[Any, Any]) -> Program:
    traced = pipeline.trace({})
    values = {name: codecs.encode(value, session.store, name=name) for name, value in traced.values.items()}
    return Program(pipeline=pipeline.name, graph=traced.graph.model_dump(mode="json"), params=values)


def _changes(api: Triggers, known: TriggerView | None, spec: Subscription | Schedule) -> list[str]:
    """Say what registering a trigger changes, a line each; nothing for the one that is registered."""
    what = "subscription" if isinstance(spec, Subscription) else "schedule"
    if known is None:
        return [f"new {what} of {spec.program.pipeline}"]
    if known.digest == spec.digest():
        return []
    old = api.get(known.kind, known.name).spec
    new = spec.model_dump(mode="json", exclude={"program"})
    lines = [
        f"{field}: {_short(old.get(field))} -> {_short(value)}"
        for field, value in new.items()
        if old.get(field) != value
    ]
    return lines or ["program changed"]


def _short(value: Any) -> str:
    text = "none" if value in (None, [], {}, "") else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
