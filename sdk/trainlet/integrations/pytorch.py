"""PyTorch: a data loader that resumes in the middle of an epoch.

Modules, optimizers, schedulers and scalers are registered as they are. A plain `DataLoader` fetches ahead, so what its
sampler has given is not what was used; and it draws from the global random numbers whenever it begins.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainlet_functions.checkpoints import Sampler


class Loader:
    """Batches of a map-style dataset in the order of a `tl.checkpoints.Sampler`. Register it; iterate once an epoch.

    `options` are those of `torch.utils.data.DataLoader`. The number of workers may change from run to run. Random numbers
    that workers draw themselves are not resumed in the middle of an epoch: draw them from the index instead.
    """

    def __init__(self, dataset: Any, sampler: Sampler, **options: Any) -> None:
        self.dataset = dataset
        self.sampler = sampler
        self._options = options

    def __iter__(self) -> Iterator[Any]:
        import torch
        from torch.utils.data import DataLoader

        ahead = copy.copy(self.sampler)
        own = torch.Generator().manual_seed(self.sampler.seed + self.sampler.epoch)
        end = (self.sampler.epoch + 1) * self.sampler.size
        for batch in DataLoader(self.dataset, batch_sampler=ahead, generator=own, **self._options):
            self.sampler.position = min(self.sampler.position + self.sampler.batch, end)
            yield batch

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch."""
        return -(-self.sampler.size // self.sampler.batch)

    def state_dict(self) -> dict[str, int]:
        """Return the position behind the batch in hand."""
        return self.sampler.state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from a position."""
        self.sampler.load_state_dict(state)
