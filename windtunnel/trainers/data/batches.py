"""Encoded rows in memory as batches, whose order follows from a few facts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from windtunnel.encode import Batch
from windtunnel.errors import BadInput
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.order import whole
from windtunnel.trainers.loop.processes import rank, world

if TYPE_CHECKING:
    from windtunnel.trainers.data.schema import BatchSchema


Item = tuple[Batch, Tensor] | tuple[Batch, Tensor, Tensor]


class Batches:
    """Encoded rows in memory, handed out as ``(Batch, target)`` or ``(Batch, target, weight)``.

    Batches are slices of contiguous tensors. Shuffling draws one permutation per epoch from ``seed + epoch``, so that
    an epoch sees the same order however often it is run; an epoch is named with ``set_epoch`` and otherwise counts up.
    In a distributed run process r of R takes every R-th row of that order, from the r-th on, and as many steps as the
    others: where N is no multiple of R, fewer than R of the first rows come a second time at the end.

    Parameters
    ----------
    rows : Batch
        ``numbers`` float32 ``[N, n]`` and ``ids`` int64 ``[N, m]``.
    target : Tensor or None
        Encoded targets ``[N]`` or ``[N, K]``; None yields the bare ``Batch``.
    weight : Tensor or None
        Row weights ``[N]``, from 0.
    batch_size : int
        Rows per batch; the last one may be smaller.
    shuffle, drop_last : bool
        Whether to permute the rows, and whether to leave out a smaller last batch.
    seed : int
        Of the order of the rows.

    Attributes
    ----------
    schema : BatchSchema or None
        What the rows were encoded by, where ``windtunnel.loader`` did it: ``fit`` rejects those of another translation.
    scores : Tensor or None
        ``[N, K]``, raw scores that a residual model learns beside, in the place of those of the translation.
    equal : bool
        Whether the processes take as many rows each; without it no row comes twice.
    skipped : int
        Batches that the next pass leaves out at its start.
    pinned : bool
        Whether batches are put into pinned memory, from where a GPU takes the next ones while it works on others.
    """

    def __init__(
        self,
        rows: Batch,
        target: Tensor | None = None,
        weight: Tensor | None = None,
        *,
        batch_size: int = 4096,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self.rows = Batch(*(block.contiguous() for block in rows))
        self.target = target
        self.weight = weight
        self.batch_size = whole("batch_size", batch_size, 1)
        self.shuffle = shuffle
        self.seed = whole("seed", seed, 0)
        self.drop_last = drop_last
        self.schema: BatchSchema | None = None
        self.scores: Tensor | None = None
        self.equal = True
        self.skipped = 0
        self.pinned = False
        self._epoch = 0

    @property
    def size(self) -> int:
        """The number of rows N."""
        return self.rows.numbers.shape[0]

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch whose order the next pass takes."""
        self._epoch, self.skipped = epoch, 0

    def skip(self, batches: int) -> None:
        """Let the next pass begin after so many batches."""
        self.skipped = batches

    @property
    def order(self) -> dict[str, Any]:
        """What the order of the rows follows from, but for the epoch."""
        facts = {"rows": self.size, "batch_size": self.batch_size, "shuffle": self.shuffle, "seed": self.seed}
        return {**facts, "drop_last": self.drop_last, "targets": self._fingerprint}

    @cached_property
    def _fingerprint(self) -> str:
        """Tells other targets and weights, or the same in another order, from these."""
        told = blake2b(digest_size=8)
        for one in (self.target, self.weight):
            told.update(b"" if one is None else one.cpu().contiguous().numpy().tobytes())
        return told.hexdigest()

    def __len__(self) -> int:
        if world() == 1:
            return self._steps(self.size)
        rows = len(self._share())
        if not self._steps(rows):
            raise BadInput(
                f"the {rows} rows of a process, of {self.size} in all, make no full batch of {self.batch_size} with "
                "drop_last=True; take a smaller batch_size, drop_last=False or fewer processes"
            )
        return self._steps(rows)

    def _steps(self, rows: int) -> int:
        return rows // self.batch_size if self.drop_last else -(-rows // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        # A generator: nothing is drawn before the first batch is asked for, hence after set_epoch.
        order, skipped = self._order(), self.skipped
        self._epoch, self.skipped = self._epoch + 1, 0
        for start in range(skipped * self.batch_size, len(self) * self.batch_size, self.batch_size):
            yield self._take(order, start, start + self.batch_size)

    def _order(self) -> Tensor | None:
        """Row numbers in the order of this epoch; None for the order in which they lie."""
        if not self.shuffle and world() == 1:
            return None
        generator = torch.Generator().manual_seed(self.seed + self._epoch)
        order = torch.randperm(self.size, generator=generator) if self.shuffle else torch.arange(self.size)
        if world() > 1:
            order = order[self._share()]
        return order.to(self.rows.numbers.device)

    def _share(self) -> Tensor:
        """The places of this process in the order of the rows, int64."""
        if self.equal:
            return torch.arange(rank(), -(-self.size // world()) * world(), world()) % self.size
        return torch.arange(min(rank(), self.size - 1), self.size, world())

    def _take(self, order: Tensor | None, start: int, stop: int) -> Any:
        def part(block: Tensor) -> Tensor:
            taken = block[start:stop] if order is None else block.index_select(0, order[start:stop])
            return taken.pin_memory() if self.pinned else taken

        rows = Batch(part(self.rows.numbers), part(self.rows.ids))
        if self.target is None:
            return rows
        if self.weight is None:
            return rows, part(self.target)
        return rows, part(self.target), part(self.weight)

    def subset(self, index: Tensor, *, shuffle: bool) -> Batches:
        """Pick the rows of these numbers, int64 ``[n]``."""
        picked = self._with(
            Batch(self.rows.numbers[index], self.rows.ids[index]),
            None if self.target is None else self.target[index],
            None if self.weight is None else self.weight[index],
            shuffle=shuffle,
        )
        picked.scores = None if self.scores is None else self.scores[index]
        return picked

    def in_order(self) -> Batches:
        """Give the same rows unshuffled, to judge by."""
        ordered = self._with(self.rows, self.target, self.weight, shuffle=False)
        ordered.scores, ordered.equal = self.scores, False
        return ordered

    def to(self, device: torch.device) -> Batches:
        """Give the same rows on a device."""
        rows = Batch(self.rows.numbers.to(device), self.rows.ids.to(device))
        target = None if self.target is None else self.target.to(device)
        weight = None if self.weight is None else self.weight.to(device)
        return self._with(rows, target, weight, shuffle=self.shuffle)

    def _with(self, rows: Batch, target: Tensor | None, weight: Tensor | None, *, shuffle: bool) -> Batches:
        options = {"batch_size": self.batch_size, "seed": self.seed, "drop_last": self.drop_last and shuffle}
        made = self._of(rows, target, weight, shuffle=shuffle, **options)
        made.equal, made.schema = self.equal, self.schema
        return made

    def _of(self, rows: Batch, target: Tensor | None, weight: Tensor | None, **options: Any) -> Batches:
        return Batches(rows, target, weight, **options)

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        blocks = [*self.rows, self.target, self.weight]
        return sum(block.nbytes for block in blocks if block is not None)


class Streamed(Batches):
    """Raw rows in memory, each batch encoded when it is asked for; ``rows.ids`` hold no more than the row numbers.

    For translations with ``untranslated="stream"``: what a step on the host makes of all rows need never fit in memory.

    Parameters
    ----------
    net : TranslatedPipeline
        Encodes the rows.
    raw : DataFrame, array or sparse matrix
        All rows.
    rows : Batch
        Row numbers int64 ``[N, 1]`` as ``ids``, no ``numbers``.
    training : bool
        Passed on to ``net.encode``.
    target, weight, **options
        See ``Batches``.
    """

    def __init__(
        self,
        net: TranslatedPipeline,
        raw: Any,
        rows: Batch,
        target: Tensor | None = None,
        weight: Tensor | None = None,
        *,
        training: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(rows, target, weight, **options)
        self.net, self.raw, self.training = net, raw, training

    def _take(self, order: Tensor | None, start: int, stop: int) -> Any:
        item = super()._take(order, start, stop)
        numbers, *rest = (item,) if self.target is None else item
        index = numbers.ids[:, 0].numpy(force=True)
        given = self.raw.iloc[index] if hasattr(self.raw, "iloc") else self.raw[index]
        batch = Batch(*(block.to(numbers.ids.device) for block in self.net.encode(given, training=self.training)))
        return (batch, *rest) if rest else batch

    def _of(self, rows: Batch, target: Tensor | None, weight: Tensor | None, **options: Any) -> Streamed:
        return Streamed(self.net, self.raw, rows, target, weight, training=self.training, **options)
