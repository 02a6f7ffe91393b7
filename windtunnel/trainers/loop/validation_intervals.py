"""Intervals of equally many steps between validations, over as many passes as they need."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch

from windtunnel.errors import BadInput
from windtunnel.trainers.data.encoded_loader import EncodedLoader


class ValidationIntervals(EncodedLoader):
    """The batches of another loader in intervals of ``steps`` batches, Lightning's epochs.

    Interval e holds the batches e steps to (e + 1) steps - 1 of all passes one after the other, each pass in its own
    order. So every pass has each row once, however many intervals it takes.
    """

    def __init__(self, loader: EncodedLoader, steps: int) -> None:
        self.loader, self.steps = loader, steps
        self._start, self._read = 0, 0
        self._batches: Iterator[Any] | None = None

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Any]:
        skipped, self.skipped = self.skipped, 0
        first = self._start + skipped
        if self._batches is None or self._read != first:
            self._batches, self._read = self._from(first), first
        for batch in islice(self._batches, self.steps - skipped):
            self._read += 1
            yield batch

    def _from(self, first: int) -> Iterator[Any]:
        """All batches from batch ``first`` on; if the loader's order is unknown, from the beginning of a pass."""
        known = first and self.loader.order is not None
        epoch, done = divmod(first, len(self.loader)) if known else (first // self.steps, 0)
        while True:
            self.loader.set_epoch(epoch)
            if done:
                self.loader.skip(done)
            read = self._read
            yield from self.loader
            if self._read == read:
                raise BadInput(f"the training loader yields no batch in pass {epoch + 1}; give one that starts again")
            epoch, done = epoch + 1, 0

    def set_epoch(self, epoch: int) -> None:
        """Set the interval."""
        self._start = epoch * self.steps

    @property
    def order(self) -> dict[str, Any] | None:
        """The facts of a pass and the steps between validations."""
        return None if self.loader.order is None else {**self.loader.order, "steps between validations": self.steps}

    def skip(self, batches: int) -> None:
        """Leave out the first batches of the next interval."""
        self.skipped = batches

    def to(self, device: torch.device) -> ValidationIntervals:
        """The same intervals of the rows on a device."""
        return ValidationIntervals(self.loader.to(device), self.steps)

    def pin(self) -> None:
        """Pin the memory of batches."""
        self.loader.pin()

    @property
    def nbytes(self) -> int:
        """Bytes of the rows in memory."""
        return self.loader.nbytes
