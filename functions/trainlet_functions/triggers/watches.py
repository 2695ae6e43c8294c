"""What a cluster is told of a trigger: the part of it that a broker or a clock outside of the API can know."""

from __future__ import annotations

from trainlet.core.triggers import Schedule, Subscription, Watch
from trainlet_functions.triggers import filters, sources


def watch(name: str, spec: Subscription | Schedule) -> Watch | None:
    """Return it; None where nothing comes from outside: the API itself looks at a place, or speaks of its own runs."""
    if isinstance(spec, Schedule):
        return Watch(name=name, when=spec.when, tz=spec.tz)
    compiled = filters.compile(spec.filters)
    types = [kind for kind, _ in compiled.index_keys() or [(None, None)]]
    if spec.poll is not None or all(kind is not None and kind.startswith(sources.OWN_TYPE) for kind in types):
        return None
    return Watch(name=name, filters=compiled.to_knative())
