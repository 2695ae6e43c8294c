"""Where training stands in its data and its random numbers: both go into a checkpoint, so a resumed run repeats nothing.

The order of samples is a function of (seed, epoch), the state is one integer, and neither depends on how many ranks or
loader workers there are: a run may resume on any number of them and sees the same global order.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any

from blake3 import blake3

from trainlet.core.errors import UserError

ROUNDS = 6


class Sampler:
    """Gives each of `size` samples once an epoch, in an order that `seed` and the epoch decide. Register it.

    `batch` samples make a global batch; rank r of `world` gets every world-th of its indices. `position` counts the
    samples that all ranks together have been given since the beginning, over all epochs. It counts the batch in hand: call
    `checkpoint.step` after that batch has been used.
    """

    def __init__(
        self, size: int, batch: int, *, seed: int = 0, rank: int = 0, world: int = 1, shuffle: bool = True
    ) -> None:
        for name, value, least in (("size", size, 1), ("batch", batch, 1), ("world", world, 1), ("rank", rank, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UserError(f"Sampler({name}={value!r}) must be a whole number from {least}.")
        if rank >= world:
            raise UserError(f"Sampler(rank={rank}) must be below world={world}.")
        self.size, self.batch, self.seed = size, batch, seed
        self.rank, self.world, self.shuffle = rank, world, shuffle
        self.position = 0

    @property
    def epoch(self) -> int:
        """Return the epoch of the next sample, from 0."""
        return self.position // self.size

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this rank's indices of each batch, to the end of the epoch. The last batch may be smaller."""
        epoch = self.epoch
        end = (epoch + 1) * self.size
        order = _keys(self.seed, epoch)
        while self.position < end:
            count = min(self.batch, end - self.position)
            first = self.position - epoch * self.size
            self.position += count
            yield [self._at(order, first + index) for index in range(self.rank, count, self.world)]

    def state_dict(self) -> dict[str, int]:
        """Return the position, and what it only means something with."""
        return {"position": self.position, "size": self.size, "seed": self.seed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from a position; raises ValueError when it is of other data or another order."""
        if (state["size"], state["seed"]) != (self.size, self.seed):
            raise ValueError(
                f"the position is in {state['size']} samples with seed {state['seed']}, "
                f"this sampler has {self.size} with seed {self.seed}"
            )
        self.position = int(state["position"])

    def _at(self, order: tuple[int, ...], index: int) -> int:
        """Return the sample at a place of an epoch's order: a Feistel network over the next even power of two.

        It permutes a range that may be larger than `size`; walking on from an image outside leads back in.
        """
        if not self.shuffle:
            return index
        half = max(1, ((self.size - 1).bit_length() + 1) // 2)
        mask = (1 << half) - 1
        while True:
            left, right = index >> half, index & mask
            for key in order:
                left, right = right, left ^ (_mixed(right ^ key) & mask)
            index = left << half | right
            if index < self.size:
                return index


class RandomStates:
    """The global random generators of Python, NumPy and PyTorch, as far as they are loaded. Register one."""

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all generators."""
        states: dict[str, Any] = {"python": random.getstate()}
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if numpy is not None:
            states["numpy"] = numpy.random.get_state(legacy=True)
        if torch is not None:
            states["torch"] = torch.get_rng_state()
            if torch.cuda.is_available():
                states["cuda"] = list(torch.cuda.get_rng_state_all())
        return states

    def load_state_dict(self, states: dict[str, Any]) -> None:
        """Set the generators that are in the states and loaded here."""
        version, words, gauss = states["python"]
        random.setstate((version, tuple(words), gauss))
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if numpy is not None and "numpy" in states:
            numpy.random.set_state(tuple(states["numpy"]))
        if torch is not None and "torch" in states:
            torch.set_rng_state(states["torch"])
            if "cuda" in states and torch.cuda.device_count() == len(states["cuda"]):
                torch.cuda.set_rng_state_all(states["cuda"])


def _keys(seed: int, epoch: int) -> tuple[int, ...]:
    raw = blake3(f"{seed}/{epoch}".encode()).digest(8 * ROUNDS)
    return tuple(int.from_bytes(raw[8 * one : 8 * one + 8], "little") for one in range(ROUNDS))


def _mixed(value: int) -> int:
    """Return 64 bits in which each bit depends on each bit of the value: the finalizer of splitmix64."""
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    value = (value ^ value >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return value ^ value >> 31
