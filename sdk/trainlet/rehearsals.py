"""Rehearsals: a graph that is run in this process, or with every task in a clean process of its own.

It needs no training API, no worker and no device; what a step returns stays in a directory of this machine.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlet import runs
from trainlet.core import codecs, graphs
from trainlet.core.settings import Settings

if TYPE_CHECKING:
    from trainlet.steps import Step
    from trainlet_pipelines import runner


def local(
    graph: graphs.Graph,
    params: Mapping[str, Any],
    steps: Mapping[str, Step[Any, Any]],
    *,
    isolated: bool = False,
    max_parallel: int | None = None,
) -> Any:
    """Run the graph in this process, or each task in a clean process with only its bundle; return what it returns."""
    from trainlet.client.stores import DirectoryStore
    from trainlet_pipelines import caches, executors, runner, values
    from trainlet_pipelines import isolated as clean

    home = Settings.from_environment().home
    run_id = runs.new_id(graph.name)
    store = DirectoryStore(home / "store")
    scratch = home / "local" / run_id
    given = {**graph.parameters, **params}
    for step in steps.values():
        if step.options.ranks > 1:
            print(f"{step.name} has {step.options.ranks} ranks; here it runs as one process.", file=sys.stderr)
    executor: Any
    space: Any
    if isolated:
        space = values.EncodedSpace(store, scratch)
        given = {name: codecs.encode(value, store, name=name) for name, value in given.items()}
        built = {name: step.bundle() for name, step in steps.items()}
        specs = {name: step.spec() for name, step in steps.items()}
        code = {name: bundle.data for name, bundle in built.items()}
        executor = clean.Isolated(specs, code, run_id, store, scratch, home, max_parallel)
    else:
        space = values.PlainSpace()
        local_steps = {name: _local(step) for name, step in steps.items()}
        executor = executors.InProcess(local_steps, run_id, store, scratch, max_parallel)
    walked: runner.Executor = executor
    if graph.cache:
        cache = caches.Cache(
            store,
            run_id,
            "local",
            encode=runs.as_it_is if isolated else lambda value: codecs.encode(value, store),
            decode=runs.as_it_is if isolated else lambda value: codecs.decode(value, store, workdir=scratch),
            tell=lambda text: print(text, file=sys.stderr),
        )
        walked = caches.Cached(executor, cache, {name: step.spec().digest() for name, step in steps.items()})
    try:
        with contextlib.nullcontext() if isolated else _secrets(home, steps):
            result = runner.Runner(graph, given, space, walked).run()
    finally:
        executor.close()
    if result.state != "succeeded":
        raise runner.failure(result, f"Pipeline {graph.name!r}")
    return runs.returned({name: space.plain(value) for name, value in result.outputs.items()})


@contextlib.contextmanager
def _secrets(home: Path, steps: Mapping[str, Step[Any, Any]]) -> Iterator[None]:
    """Set the variables of the steps' secrets for the time of a run; all steps share this process and see all of them."""
    from trainlet_functions import secrets

    values = secrets.environment(home, {name for step in steps.values() for name in step.options.secrets})
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _local(step: Step[Any, Any]) -> Any:
    from trainlet_pipelines.executors import LocalStep

    options = step.options
    return LocalStep(step._function, step.name, options.resources, options.retries.times, options.checkpoint)
