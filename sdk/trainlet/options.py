"""The options of `@tl.step`, checked when the decorator runs.

People write an int, a string or an object; this module turns all of them into the values of `trainlet.core.specs`. A
value that is wrong, and an option that would do nothing, is a UserError that names the nearest thing that works. It
must not know functions, bundles or runs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, get_args

from trainlet.core import durations, gpus, specs, tags
from trainlet.core.bundles import MANIFEST
from trainlet.core.errors import UserError

Duration = str | int | float | timedelta
OPTION_NAMES = (
    "gpu", "cpu", "memory", "retries", "timeout", "checkpoint", "ranks", "packages", "secrets", "image", "name",
    "max_workers", "grace", "allow_pickle", "backend", "tags",
)  # fmt: skip
BACKENDS = get_args(specs.Backend)


def Retries(  # noqa: N802 - reads as the value it makes
    times: int = 3, *, delay: Duration = 1, factor: float = 2.0, max_delay: Duration = 60
) -> specs.Retries:
    """Repeat failed attempts `times` times, waiting `delay`, then `factor` times longer each, at most `max_delay`.

    Preempted and lost attempts are not failures; they are always dispatched again.
    """
    if isinstance(times, bool) or not isinstance(times, int) or not 0 <= times <= 100:
        raise UserError(f"Retries(times={times!r}) must be a whole number from 0 to 100, such as Retries(3).")
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 1 <= factor < float("inf"):
        raise UserError(f"Retries(factor={factor!r}) must be 1 or more; 2.0 doubles the delay each time.")
    delay_s = 0.0 if delay == 0 else durations.parse_duration_s(delay, "Retries(delay=) ")
    max_delay_s = durations.parse_duration_s(max_delay, "Retries(max_delay=) ")
    if delay_s > max_delay_s:
        raise UserError(f"Retries(delay={delay!r}) is longer than max_delay={max_delay!r}. Raise max_delay.")
    return specs.Retries(times=times, delay_s=delay_s, factor=float(factor), max_delay_s=max_delay_s)


def Checkpoint(  # noqa: N802 - reads as the value it makes
    *,
    every: Duration | None = None,
    on_improve: tuple[str, Literal["min", "max"]] | None = None,
    on_sigterm: bool = True,
    keep: specs.Keep | int | None = None,
) -> specs.CheckpointPolicy:
    """Say when `ctx.checkpoint.step` saves: `every` so often, when a metric improves, and when the worker must go.

    Without `every` it saves as often as it pays. `keep`: tl.Keep(...), or how many of the last checkpoints stay.
    """
    every_s = None if every is None else durations.parse_duration_s(every, "Checkpoint(every=) ")
    if on_improve is not None:
        _check_improve(on_improve)
        on_improve = (on_improve[0], on_improve[1])
    if not isinstance(on_sigterm, bool):
        raise UserError(f"Checkpoint(on_sigterm={on_sigterm!r}) must be True or False.")
    if every_s is None and on_improve is None and not on_sigterm:
        raise UserError(
            "This Checkpoint never saves: it has no every=, no on_improve=, and on_sigterm=False. "
            'Write Checkpoint(every="10m"), or leave checkpoint= out.'
        )
    if keep is None:
        keep = specs.Keep()
    elif not isinstance(keep, specs.Keep):
        keep = Keep(last=keep)
    if keep.best > 1 and on_improve is None:
        raise UserError(
            f"Checkpoint(keep=Keep(best={keep.best})) does nothing without a metric to be best by. "
            'Add on_improve=("val_loss", "min").'
        )
    return specs.CheckpointPolicy(every_s=every_s, on_improve=on_improve, on_sigterm=on_sigterm, keep=keep)


def Keep(*, last: int = 3, best: int = 1, hourly: int = 0, pins: bool = True) -> specs.Keep:  # noqa: N802
    """Say which checkpoints stay: the `last` ones, the `best` by the on_improve metric, one an hour, and pinned ones."""
    for name, value, least in (("last", last, 1), ("best", best, 0), ("hourly", hourly, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 1000:
            raise UserError(f"Keep({name}={value!r}) must be a whole number from {least} to 1000.")
    if not isinstance(pins, bool):
        raise UserError(f"Keep(pins={pins!r}) must be True or False.")
    return specs.Keep(last=last, best=best, hourly=hourly, pins=pins)


def _check_improve(value: Any) -> None:
    fix = 'Write on_improve=("val_loss", "min").'
    if isinstance(value, str):
        raise UserError(f'Checkpoint(on_improve={value!r}) lacks a direction. Write on_improve=("{value}", "min").')
    if not isinstance(value, (tuple, list)) or len(value) != 2 or not all(isinstance(one, str) for one in value):
        raise UserError(f"Checkpoint(on_improve={value!r}) must be a metric and a direction. {fix}")
    if not value[0]:
        raise UserError(f"Checkpoint(on_improve={value!r}) has an empty metric name. {fix}")
    if value[1] not in ("min", "max"):
        raise UserError(
            f"Checkpoint(on_improve={tuple(value)!r}): {value[1]!r} is no direction. "
            f"{durations.nearest(value[1], ('min', 'max'))}"
        )


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one step, parsed. `packages` stays as written: requirement strings, or a path to a file."""

    resources: specs.Resources = field(default_factory=specs.Resources)
    retries: specs.Retries = field(default_factory=specs.Retries)
    timeout_s: float | None = None
    checkpoint: specs.CheckpointPolicy | None = None
    ranks: int = 1
    packages: tuple[str, ...] | Path | None = None
    secrets: tuple[str, ...] = ()
    image: str | None = None
    name: str | None = None
    max_workers: int = 16
    grace_s: float = 30.0
    allow_pickle: bool = False
    backend: specs.Backend = "service"
    tags: dict[str, str] = field(default_factory=dict)


def parse(raw: dict[str, Any], folder: Path | None = None) -> Options:
    """Turn the keyword arguments of the decorator into Options; None means: not given.

    `folder` is where the step is written: a relative path of a requirements file may mean that folder.
    """
    for name in raw:
        if name not in OPTION_NAMES:
            raise UserError(f"{name}= is not an option of tl.step. {durations.nearest(name, OPTION_NAMES)}")
    given = {name: value for name, value in raw.items() if value is not None}
    requests = gpus.parse_gpus(given.get("gpu"))
    parsed = Options(
        resources=specs.Resources(gpus=requests, cpu=_cpu(given), memory_bytes=_memory(given)),
        retries=_retries(given),
        checkpoint=_checkpoint(given),
        ranks=_ranks(given, requests),
        packages=_packages(given, folder),
        secrets=_secrets(given),
    )
    changes: dict[str, Any] = {}
    if "timeout" in given:
        changes["timeout_s"] = durations.parse_duration_s(given["timeout"], "timeout=")
    if "grace" in given:
        changes["grace_s"] = durations.parse_duration_s(given["grace"], "grace=")
    for name in ("image", "name"):
        if name in given:
            if not isinstance(given[name], str) or not given[name].strip():
                raise UserError(f"{name}={given[name]!r} must be a text that is not empty.")
            changes[name] = given[name].strip()
    if "name" in changes:
        changes["name"] = _name(changes["name"])
    if "max_workers" in given:
        changes["max_workers"] = _whole(given["max_workers"], "max_workers=", 1000)
    if "allow_pickle" in given:
        if not isinstance(given["allow_pickle"], bool):
            raise UserError(f"allow_pickle={given['allow_pickle']!r} must be True or False.")
        changes["allow_pickle"] = given["allow_pickle"]
    if "backend" in given:
        if given["backend"] not in BACKENDS:
            raise UserError(
                f"backend={given['backend']!r} is nothing that runs steps. "
                f"{durations.nearest(str(given['backend']), BACKENDS)}"
            )
        changes["backend"] = given["backend"]
    if "tags" in given:
        changes["tags"] = tags.parse_tags(given["tags"], "tags=")
    return replace(parsed, **changes)


def _cpu(given: dict[str, Any]) -> float | None:
    if "cpu" not in given:
        return None
    value = given["cpu"]
    number: float | None = None
    if isinstance(value, str):
        text = value.strip()
        try:
            number = float(text[:-1]) / 1000 if text.endswith("m") else float(text)
        except ValueError:
            number = None
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
    if number is None or not 0 < number < 10_000:
        raise UserError(f'cpu={value!r} is no number of cores. Write 2, 0.5 or "500m".')
    return number


def _memory(given: dict[str, Any]) -> int | None:
    return durations.parse_size_bytes(given["memory"], "memory=") if "memory" in given else None


def _retries(given: dict[str, Any]) -> specs.Retries:
    value = given.get("retries", 0)
    if isinstance(value, specs.Retries):
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise UserError(f"retries={value!r} must be a whole number or tl.Retries(...), such as retries=3.")
    if not 0 <= value <= 100:
        raise UserError(f"retries={value!r} must be from 0 to 100. Write retries={0 if value < 0 else 100}.")
    return specs.Retries(times=value)


def _checkpoint(given: dict[str, Any]) -> specs.CheckpointPolicy | None:
    value = given.get("checkpoint", False)
    if isinstance(value, specs.CheckpointPolicy):
        return value
    if isinstance(value, bool):
        return specs.CheckpointPolicy() if value else None
    if isinstance(value, (str, int, float, timedelta)):
        return specs.CheckpointPolicy(every_s=durations.parse_duration_s(value, "checkpoint="))
    raise UserError(f'checkpoint={value!r} must be tl.Checkpoint(...), True, or how often, such as "10m".')


def _ranks(given: dict[str, Any], requests: tuple[specs.GpuRequest, ...]) -> int:
    value = given.get("ranks", 1)
    if isinstance(value, str):
        if value != "gpu":
            raise UserError(f'ranks={value!r} must be "gpu" (one child for each GPU) or a whole number.')
        if not requests:
            raise UserError('ranks="gpu" does nothing without gpu=. Add gpu="A100:2", or write ranks=2 for CPU ranks.')
        counts = {request.count for request in requests}
        if len(counts) > 1:
            raise UserError(
                f'ranks="gpu" needs the same count in every fallback, and gpu= has {sorted(counts)}. '
                "Give each the same count."
            )
        return requests[0].count
    ranks = _whole(value, "ranks=", 1024)
    for request in requests:
        if ranks > 1 and request.count % ranks:
            raise UserError(
                f"ranks={ranks} cannot share {request.count} x {request.sku} evenly. "
                f'Write ranks="gpu", or gpu="{request.sku}:{ranks}".'
            )
    return ranks


def _packages(given: dict[str, Any], folder: Path | None) -> tuple[str, ...] | Path | None:
    value = given.get("packages")
    if value is None:
        return None
    if isinstance(value, (str, os.PathLike)):
        path = Path(value)
        for place in (Path.cwd(), *([folder] if folder else [])):
            if (place / path).is_file():
                return (place / path).absolute()
        if folder is not None and _inside_bundle(folder):
            return path
        if path.suffix not in (".txt", ".in", ".toml"):
            raise UserError(
                f'packages={str(value)!r} is no requirements file. For one package, write a list: packages=["{value}"].'
            )
        raise UserError(f"packages={str(value)!r}: there is no such file in {Path.cwd()}. Correct the path.")
    if not isinstance(value, Sequence) or not all(isinstance(one, str) and one.strip() for one in value):
        raise UserError(
            f'packages={value!r} must be a list such as ["torch==2.4.1"], or the path of a requirements file.'
        )
    if not value:
        raise UserError("packages=[] does nothing. Name a package, or leave the option out.")
    return tuple(one.strip() for one in value)


def _inside_bundle(folder: Path) -> bool:
    """Say whether code runs from an unpacked bundle, where the requirements were locked before."""
    return any((place / MANIFEST).is_file() for place in (folder, *folder.parents))


def _secrets(given: dict[str, Any]) -> tuple[str, ...]:
    value = given.get("secrets", ())
    if isinstance(value, str):
        raise UserError(f'secrets={value!r} must be a list. Write secrets=["{value}"].')
    if not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        raise UserError(f'secrets={value!r} must be a list of names, such as ["hf-token"].')
    if "secrets" in given and not value:
        raise UserError("secrets=[] does nothing. Name a secret, or leave the option out.")
    for one in value:
        try:
            label = specs.dns_label(one)
        except ValueError:
            label = "my-secret"
        if label != one:
            raise UserError(f'secrets={list(value)!r}: {one!r} is no name of a secret. Write "{label}".')
    if len(set(value)) != len(value):
        raise UserError(f"secrets={list(value)!r} names one of them twice. Remove it.")
    return tuple(value)


def _name(value: str) -> str:
    try:
        label = specs.dns_label(value)
    except ValueError as error:
        raise UserError(f"name={value!r}: {error}.") from None
    if label != value:
        raise UserError(f'name={value!r} is no DNS label. Write name="{label}".')
    return value


def _whole(value: Any, what: str, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        nearest = min(max(int(value), 1), most) if isinstance(value, int) else 1
        raise UserError(f"{what}{value!r} must be a whole number from 1 to {most}. Write {what}{nearest}.")
    return value
