"""The trainer's side of staging: which buffer is free, and the copy into it. All that the training thread ever pays."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

from trainlet_functions.checkpoints import arrays, layouts, states
from trainlet_functions.checkpoints.stages import Buffer, Snapshot

STOP = "stop:"  # before the reason of a save that is the last one


class Stager:
    """Copies registered objects into the older of the buffers that nobody uploads from."""

    def __init__(
        self, buffers: list[Buffer], note: Callable[[int, int | None], None] = lambda index, step: None
    ) -> None:
        self._buffers = buffers
        self._tell = note  # (buffer, the step that is whole in it), for the other ranks
        self._sequence = 0
        self._wanted: dict[int, tuple[int, str]] = {}  # buffer -> (sequence, why to commit it), until that has begun
        self._room = 0
        self._preparing: threading.Thread | None = None
        self.stall_s = 0.0
        self.size_bytes = 0

    def prepare(self, objects: dict[str, Any]) -> None:
        """Have the memory for these objects made ready by another thread, when it is not yet."""
        found = [one for name, value in objects.items() for one in states.capture(name, value)[1].values()]
        self.size_bytes = sum(arrays.size_of(one) for one in found)
        room = self.size_bytes + self.size_bytes // 64 + 512 * len(found)  # and the headers of packs
        if room > self._room and (self._preparing is None or not self._preparing.is_alive()):
            self._room = room
            self._preparing = threading.Thread(target=self._prefault, args=(room,), name="stage", daemon=True)
            self._preparing.start()

    def _prefault(self, room: int) -> None:
        for buffer in self._buffers:
            buffer.prepare(room)

    def settled(self, sequence: int) -> None:
        """Note that whatever was staged up to here needs no commit any more."""
        self._wanted = {index: one for index, one in self._wanted.items() if one[0] > sequence}

    def stage(
        self,
        objects: dict[str, Any],
        step: int,
        reason: str,
        metrics: dict[str, float],
        data: dict[str, int | None],
    ) -> tuple[int, int, str] | None:
        """Copy the state; returns (buffer, sequence, why it is to be committed), or None when no buffer may be used.

        `reason` is empty for a copy that is only there in case of a stop. An older copy that waits to be committed gives
        way, and its reason is taken over, unless it is the best one and this one is not.
        """
        if self._preparing is not None:
            self._preparing.join()
        began = time.perf_counter()
        trees: dict[str, Any] = {}
        found: dict[str, Any] = {}
        for name, value in objects.items():
            trees[name], more = states.capture(name, value)
            found |= more
        tensors = tuple(arrays.describe(name, value) for name, value in found.items())
        layout = layouts.of(tensors)
        for index in sorted(range(len(self._buffers)), key=lambda one: self._buffers[one].peek()):
            buffer = self._buffers[index]
            waiting = self._wanted.get(index, (0, ""))[1]
            if waiting == "best" and reason in ("", "periodic") and len(self._buffers) > 1:
                continue
            buffer.prepare(layout.size_bytes)
            with buffer.locked(wait=False) as mine:
                if not mine:
                    continue
                self._sequence += 1
                self._tell(index, None)
                memory = buffer.begin(layout)
                arrays.copy_out(found, layout, memory)
                finite = {name: one for name, one in metrics.items() if math.isfinite(one)}  # JSON has no NaN
                buffer.finish(Snapshot(self._sequence, step, trees, tensors, finite, data), layout)
                self._tell(index, step)
            why = reason.removeprefix(STOP) or waiting
            self._wanted[index] = (self._sequence, why)
            took = time.perf_counter() - began
            # The first copy pays for what later ones find warm; a copy that the machine interrupted says nothing either.
            again = self._sequence > 2 and layout.size_bytes == self.size_bytes
            self.stall_s = min(took, 1.5 * self.stall_s) if again else took if self._sequence > 1 else 0.0
            self.size_bytes = layout.size_bytes
            return index, self._sequence, why
        return None
