"""How an attempt ended, in the words of the API: from what its children reported, or why they could not.

Pure functions: what happened goes in, the request to finish comes out. Everything that a person will read is masked.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainlet.core.wire import ErrorInfo, FinishRequest, StopCode

Outcome = Literal["succeeded", "failed", "preempted", "canceled"]


@dataclass(frozen=True, slots=True)
class Ended:
    """One rank that has ended: its exit status (negative: the signal) and the last thing it reported, if anything."""

    rank: int
    status: int
    message: dict[str, Any] | None

    def said(self, kind: str) -> bool:
        """Say whether its last report was of this kind."""
        return self.message is not None and self.message["type"] == kind


@dataclass(frozen=True, slots=True)
class Stop:
    """Why the attempt was asked to end."""

    code: StopCode
    reason: str


def finish(
    worker: str,
    ranks: Sequence[Ended],
    *,
    first: int | None,
    stop: Stop | None,
    saved: bool = False,
    peak_bytes: int,
    mask: Callable[[str], str],
) -> FinishRequest:
    """Return the end of an attempt whose children have all ended.

    `first` is the rank that ended without a word while the others still ran; those were killed because of it.
    `saved` says that what they had staged was committed for them.
    """
    if all(one.said("result") for one in ranks):
        return FinishRequest(worker=worker, outcome="succeeded", output=(ranks[0].message or {})["value"])
    for one in ranks:
        if one.message is not None and one.said("error"):
            error = ErrorInfo.model_validate(one.message["error"])
            words = error.message + (f" (rank {one.rank})" if len(ranks) > 1 else "")
            return failed(worker, error.model_copy(update={"message": words}), mask)
    stopped = [one.message for one in ranks if one.message is not None and one.said("stopped")]
    if stop is not None:
        return _stopped(worker, stop, saved=saved or bool(stopped), mask=mask)
    if stopped:
        outcome: Outcome = "preempted" if stopped[0]["code"] in ("preempted", "fenced") else "canceled"
        reason = str(stopped[0]["message"]) or "the step stopped itself"
        return FinishRequest(worker=worker, outcome=outcome, reason=mask(reason))
    broken = min((one for one in ranks if one.message is None), key=lambda one: one.rank != first)
    return failed(worker, _broken(broken, len(ranks), peak_bytes), mask)


def failed(worker: str, error: ErrorInfo, mask: Callable[[str], str] = str) -> FinishRequest:
    """Return the end of an attempt that failed; no secret may be in what is shown of the error."""
    shown = {name: mask(getattr(error, name)) for name in ("message", "traceback", "hint", "where")}
    return FinishRequest(worker=worker, outcome="failed", error=error.model_copy(update=shown))


def out_of_memory(used_bytes: int, limit_bytes: int) -> ErrorInfo:
    """Explain that a step used more memory than it asked for."""
    return ErrorInfo(
        kind="memory",
        type="MemoryLimit",
        message=f"The step used {size(used_bytes)} and may use memory={size(limit_bytes)}.",
        hint="Raise memory= on the step, or use less.",
    )


def _stopped(worker: str, stop: Stop, *, saved: bool, mask: Callable[[str], str]) -> FinishRequest:
    reason = mask(stop.reason) + ("" if saved else "; it did not save in time")
    if stop.code == "timeout":
        error = ErrorInfo(
            kind="timeout", type="Timeout", message=f"The attempt took too long: {reason}.", hint="Raise timeout=."
        )
        return FinishRequest(worker=worker, outcome="failed", error=error, reason=reason)
    outcome: Outcome = "preempted" if stop.code == "preempted" else "canceled"
    return FinishRequest(worker=worker, outcome=outcome, reason=reason)


def _broken(one: Ended, ranks: int, peak_bytes: int) -> ErrorInfo:
    """Explain a child that ended without a word."""
    rank = f" (rank {one.rank})" if ranks > 1 else ""
    if one.status >= 0:
        return ErrorInfo(
            kind="user",
            type="ExitedEarly",
            message=f"The step's process exited with code {one.status} without a result{rank}.",
            hint="Something called os._exit or ended the interpreter; look at the last log lines.",
        )
    name = signal.Signals(-one.status).name
    killed = one.status == -signal.SIGKILL
    memory = f" Its peak was {size(peak_bytes)}." if peak_bytes else ""
    likely = " Probably the machine ran out of memory." if killed else ""
    return ErrorInfo(
        kind="memory" if killed else "user",
        type="Killed",
        message=f"The step's process was killed by signal {-one.status} ({name}){rank}.{likely}{memory}",
        hint="Set memory= on the step to get a clear limit, or look at the last log lines.",
    )


def size(size_bytes: int) -> str:
    """Return a size in the unit that reads best."""
    return f"{size_bytes / 2**30:.2f} GiB" if size_bytes >= 2**30 else f"{size_bytes / 2**20:.0f} MiB"
