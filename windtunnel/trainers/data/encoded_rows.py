"""Encoded rows in memory, in an order that the seed and the epoch determine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, Self

import torch
from torch import Tensor

from windtunnel.encode import Batch
from windtunnel.encode.evenly_spaced import evenly_spaced
from windtunnel.errors import BadInput
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.encoded_loader import EncodedLoader, check_whole, concatenate_items, share_steps
from windtunnel.trainers.data.encoding import SeenClasses
from windtunnel.trainers.data.hold_out import can_hold_out, hold_out_mask
from windtunnel.trainers.data.labelled_rows import counted_rows
from windtunnel.trainers.data.schema import BatchSchema
from windtunnel.trainers.processes import rank, world


@dataclass(eq=False, repr=False)
class EncodedRows(EncodedLoader):
    """Encoded rows in memory, as batches ``(Batch, target)`` or ``(Batch, target, weight)``.

    Batches are slices of contiguous tensors. Each epoch draws a permutation from ``seed + epoch``, so that an epoch has
    the same order whenever it runs; ``set_epoch`` sets the epoch, and each pass adds 1 to it. In a distributed run
    process r of R takes every R-th row of that order, from the r-th on. All processes take the same number of steps: if
    N is no multiple of R, up to R - 1 of the first rows are read twice.
    """

    rows: Batch  # ``numbers`` ``[N, n]`` in the type of the encoder, and ``ids`` int64 ``[N, m]``
    target: Tensor | None = None  # encoded targets ``[N]`` or ``[N, K]``; None yields the bare ``Batch``
    weight: Tensor | None = None  # row weights ``[N]``, from 0
    _: KW_ONLY
    batch_size: int = 4096
    shuffle: bool = True
    seed: int = 0  # of the order of the rows
    drop_last: bool = False  # whether to drop a last batch that is smaller
    is_batched: bool = True  # whether ``fit`` keeps ``batch_size``; else it takes that of its recipe
    # Whether all processes take the same number of rows; if not, none is read twice, unless there are fewer rows.
    equal: bool = True
    schema: BatchSchema | None = None
    scores: Tensor | None = None
    # bool ``[N]``, the rows to validate on where no others are given; None draws them at random
    held_out: Tensor | None = None
    _pinned: bool = field(default=False, init=False)
    _epoch: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.rows = Batch(*(block.contiguous() for block in self.rows))
        self.batch_size = check_whole("batch_size", self.batch_size, 1)
        self.seed = check_whole("seed", self.seed, 0)

    @property
    def size(self) -> int:
        """The number of rows N."""
        return self.rows.numbers.shape[0]

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the order of the next pass."""
        self._epoch, self.skipped = epoch, 0

    def skip(self, batches: int) -> None:
        """Let the next pass begin after so many batches."""
        self.skipped = batches

    @property
    def order(self) -> dict[str, Any]:
        """The facts that determine the order of the rows together with the epoch."""
        facts = {"rows": self.size, "batch_size": self.batch_size, "shuffle": self.shuffle, "seed": self.seed}
        return {**facts, "drop_last": self.drop_last, "targets": self._fingerprint}

    @cached_property
    def _fingerprint(self) -> str:
        """A hash of targets and weights in their order."""
        digest = blake2b(digest_size=8)
        for values in (self.target, self.weight):
            digest.update(b"" if values is None else values.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def __len__(self) -> int:
        if world() == 1:
            return self._steps(self.size)
        rows = len(self._positions())
        if not self._steps(rows):
            raise BadInput(
                f"the {rows} rows of a process, of {self.size} in all, make no full batch of {self.batch_size} with "
                "drop_last=True; take a smaller batch_size, drop_last=False or fewer processes"
            )
        return self._steps(rows)

    def steps_of_process(self, processes: int) -> int:
        """The batches of a pass in each of so many processes, which share the rows."""
        return share_steps(len(self), processes)

    def _steps(self, rows: int) -> int:
        return rows // self.batch_size if self.drop_last else -(-rows // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        # A generator: the order is drawn when the first batch is read, hence after set_epoch.
        order, skipped = self._permutation(), self.skipped
        self._epoch, self.skipped = self._epoch + 1, 0
        for start in range(skipped * self.batch_size, len(self) * self.batch_size, self.batch_size):
            yield self._take(order, start, start + self.batch_size)

    def _permutation(self) -> Tensor | None:
        """Row numbers in the order of this epoch; None for the order in memory."""
        if not self.shuffle and world() == 1:
            return None
        generator = torch.Generator().manual_seed(self.seed + self._epoch)
        order = torch.randperm(self.size, generator=generator) if self.shuffle else torch.arange(self.size)
        if world() > 1:
            order = order[self._positions()]
        return order.to(self.rows.numbers.device)

    def _positions(self) -> Tensor:
        """The positions of this process in the order of the rows, int64."""
        if self.equal:
            return torch.arange(rank(), -(-self.size // world()) * world(), world()) % self.size
        return torch.arange(min(rank(), self.size - 1), self.size, world())

    def _take(self, order: Tensor | None, start: int, stop: int) -> Any:
        def slice_of(block: Tensor) -> Tensor:
            part = block[start:stop] if order is None else block.index_select(0, order[start:stop])
            return part.pin_memory() if self._pinned else part

        rows = Batch(*map(slice_of, self.rows))
        rest = [slice_of(block) for block in (self.target, self.weight) if block is not None]
        return (rows, *rest) if rest else rows

    def in_order(self) -> Self:
        """The same rows for validation, unshuffled."""
        return replace(self, shuffle=False, drop_last=False, equal=False)

    def to(self, device: torch.device) -> Self:
        """The same rows on a device."""
        return self._with_blocks(lambda block: block.to(device))

    def _with_blocks(self, change: Callable[[Tensor], Tensor], **options: Any) -> Self:
        """The same loader with a change of all its tensors."""
        blocks = {name: getattr(self, name) for name in ("target", "weight", "scores")}
        changed: dict[str, Any] = {name: block if block is None else change(block) for name, block in blocks.items()}
        return replace(self, rows=Batch(*map(change, self.rows)), **changed, **options)

    def map(self, change: Callable[[Batch], Batch], whole: Callable[[Batch], Batch] | None = None) -> EncodedLoader:
        """The same rows, all changed at once, by ``whole`` if given."""
        return replace(self, rows=(whole or change)(self.rows))

    def collect(self, limit: int) -> Any:
        """All rows, whatever the limit."""
        return (self.rows, self.target) if self.weight is None else (self.rows, self.target, self.weight)

    def counted(self) -> Self:
        """The rows with a weight above 0; all rows if there are none."""
        mask = counted_rows(self.weight)
        if mask is None:
            return self
        held_out = None if self.held_out is None else self.held_out[mask]
        return self._with_blocks(lambda block: block[mask], held_out=held_out)

    def with_class_weights(self, weights: Tensor) -> Self:
        """The same rows, their weights multiplied by those of their classes, ``[K]``."""
        assert self.target is not None
        factor = weights.to(self.target.device, torch.float32)[self.target]
        return replace(self, weight=factor if self.weight is None else self.weight * factor)

    def hold_out(self, fraction: float, seed: int) -> tuple[Self, Self] | None:
        """Split the rows into a training and a validation part; None if too few rows or classes are left in one.

        Without ``held_out`` rows are drawn at random, see ``hold_out_mask``.
        """
        assert self.target is not None
        chosen = self.held_out
        if chosen is None:
            chosen = hold_out_mask(self.target, self.weight, fraction, seed)
        if not can_hold_out(chosen, self.target, self.weight):
            return None
        whole = replace(self, held_out=None)
        train = whole._with_blocks(lambda block: block[~chosen], drop_last=self.drop_last and self.shuffle)
        return train, whole._with_blocks(lambda block: block[chosen], shuffle=False, drop_last=False)

    def check_batches(self, role: str) -> None:
        """Raise ``BadInput`` for rows without targets, and for too few rows to make a batch."""
        if self.target is None:
            raise BadInput(f"{role} is a loader without targets; build it as windtunnel.loader(net, X, y)")
        if len(self) == 0:
            raise BadInput(
                f"{role} yields nothing: {self.size} rows make no full batch of {self.batch_size} with drop_last=True; "
                "take a smaller batch_size or drop_last=False"
            )

    def check_classes(self, net: Any) -> None:
        """Raise ``BadInput`` for a classifier and targets of one class."""
        assert self.target is not None
        classes = SeenClasses(net)
        classes.see(self.target, self.weight)
        classes.check()

    def pin(self) -> None:
        """Put batches into pinned memory."""
        self._pinned = True

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        blocks = [*self.rows, self.target, self.weight]
        return sum(block.nbytes for block in blocks if block is not None)


@dataclass(eq=False, repr=False, kw_only=True)
class LazilyEncodedRows(EncodedRows):
    """Raw rows in memory, encoded batch by batch when they are read.

    For translations with ``untranslated="stream"``: the outputs of host steps for all rows may exceed the memory.
    ``rows`` have no numbers, and the row numbers int64 ``[N, 1]`` as ids.
    """

    net: TranslatedPipeline
    raw: Any
    training: bool = True

    def _take(self, order: Tensor | None, start: int, stop: int) -> Any:
        item = super()._take(order, start, stop)
        row_numbers, *rest = (item,) if self.target is None else item
        index = row_numbers.ids[:, 0].numpy(force=True)
        raw = self.raw.iloc[index] if hasattr(self.raw, "iloc") else self.raw[index]
        batch = Batch(*(block.to(row_numbers.ids.device) for block in self.net.encode(raw, training=self.training)))
        return (batch, *rest) if rest else batch

    # Only raw rows are in memory, so these work batch by batch.
    map = EncodedLoader.map
    pin = EncodedLoader.pin

    def collect(self, limit: int) -> Any:
        """Rows, targets and weights of at most ``limit`` rows, evenly spaced."""
        index = evenly_spaced(self.size, limit)
        starts = range(0, len(index), self.batch_size)
        return concatenate_items([self._take(index, start, start + self.batch_size) for start in starts])
