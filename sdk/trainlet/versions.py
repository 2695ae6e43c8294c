"""Versions that differ between here and the worker, for what a step imports: said before the run, not found in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainlet.core.wire import ServiceInfo


def differences(imports: Sequence[str], versions: Mapping[str, str], python: str, info: ServiceInfo) -> list[str]:
    """Return what differs, one plain sentence each. `versions` maps distributions that the step imports to ours."""
    found: list[str] = []
    theirs = ".".join(info.python.split(".")[:2])
    if theirs and theirs != python:
        found.append(f"this is Python {python}, the workers have {info.python}.")
    for name, version in sorted(versions.items()):
        there = info.packages.get(name.lower())
        if there is None and info.packages:
            found.append(
                f"it imports {name} {version}, which the workers do not have: add packages=[{name + '==' + version!r}]."
            )
        elif there is not None and there != version:
            found.append(f"it imports {name} {version} here, the workers have {there}.")
    return found
