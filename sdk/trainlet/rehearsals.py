"""Rehearsals: a graph that is run in this process, or with every task in a clean process of its own.

It needs no training API, no worker and no device; what a step returns stays in a directory of this machine.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
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

    home = Settings.from_environment().home
    run_id = runs.new_id(graph.name)
    store = DirectoryStore(home / "store")
    scratch = home / "local" / run_id
    given = {**graph.parameters, **params}
    executor: Any
    space: Any
    if isolated:
        space = values.EncodedSpace(store, scratch)
        given = {name: codecs.encode(value, store, name=name) for name, value in given.items()}
        built = {name: step.bundle() for name, step in steps.items()}
        specs = {name: step.spec() for name, step in steps.items()}
        code = {name: bundle.data for name, bundle in built.items()}
        executor = executors.Isolated(specs, code, run_id, store, scratch, max_parallel)
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
        result = runner.Runner(graph, given, space, walked).run()
    finally:
        executor.close()
    if result.state != "succeeded":
        raise runner.failure(result, f"Pipeline {graph.name!r}")
    return runs.returned({name: space.plain(value) for name, value in result.outputs.items()})


def _local(step: Step[Any, Any]) -> Any:
    from trainlet_pipelines.executors import LocalStep

    options = step.options
    return LocalStep(step._function, step.name, options.resources, options.retries.times, options.checkpoint)
