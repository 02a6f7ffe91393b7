"""The base class of the loaders of training and validation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from windtunnel.encode import Batch
from windtunnel.errors import InvalidOption, is_whole_number
from windtunnel.trainers.data.schema import BatchSchema
from windtunnel.trainers.processes import world

Item = tuple[Batch, Tensor] | tuple[Batch, Tensor, Tensor]
"""Rows, targets, and weights where there are any."""
ROW_FACTS = ("rows", "targets", "row_groups")
"""The facts in ``order`` that identify the rows; the others are those of their order."""


class EncodedLoader(ABC):
    """Encoded batches ``(Batch, target)`` or ``(Batch, target, weight)``, one pass per epoch.

    The defaults of the methods suit a loader whose rows and order are unknown.
    """

    # The columns, vocabularies and labels that rows are encoded with; ``fit`` rejects those of another translation.
    schema: BatchSchema | None = None
    rows: Batch | None = None  # all rows, where they lie in memory
    # ``[N, K]``, init scores of rows in memory for the residual model, instead of those of the translation (set by
    # ``crossfit``).
    scores: Tensor | None = None
    skipped: int = 0  # batches that the next pass leaves out at its start

    @abstractmethod
    def __iter__(self) -> Iterator[Any]: ...

    @abstractmethod
    def __len__(self) -> int:
        """The number of batches in a pass; a ``TypeError`` where it is unknown."""

    def steps_of_process(self, processes: int) -> int:
        """The batches of a pass in each of so many processes, before Lightning has connected them too.

        A caller's loader yields the rows of its process from the beginning.
        """
        return len(self)

    def set_epoch(self, epoch: int) -> None:  # noqa: B027  # the default does nothing
        """Set the epoch, which determines the order of the next pass."""

    @property
    def order(self) -> dict[str, Any] | None:
        """The facts that determine the order of the rows together with the epoch, as JSON values.

        None where the order is unknown, so that no pass can begin in the middle of an epoch.
        """
        return None

    def skip(self, batches: int) -> None:
        """Leave out the first batches of the next pass; only if ``order`` is known."""
        raise NotImplementedError

    def order_among(self, processes: int) -> dict[str, Any] | None:
        """``order`` in a run of several processes."""
        return None if self.order is None else {"workers": 0, **self.order, "processes": processes}

    @property
    def row_facts(self) -> dict[str, Any] | None:
        """The facts that identify the rows, whatever their order; None where they are unknown."""
        return None if self.order is None else {name: self.order[name] for name in ROW_FACTS if name in self.order}

    def in_order(self) -> EncodedLoader:
        """The same rows for validation: unshuffled where that is possible."""
        return self

    def collect(self, limit: int) -> Any:
        """Rows, targets and weights of the first batches with ``limit`` rows in all, or of all batches."""
        items, count = [], 0
        for item in self:
            items.append(item)
            count += len(item[1])
            if count >= limit:
                break
        return concatenate_items(items)

    def map(self, change: Callable[[Batch], Batch], whole: Callable[[Batch], Batch] | None = None) -> EncodedLoader:
        """The same batches, each changed by ``change``; rows in memory are changed at once, by ``whole`` if given."""
        return MappedLoader(self, change)

    def hold_out(self, fraction: float, seed: int) -> tuple[EncodedLoader, EncodedLoader] | None:
        """Split rows in memory into a training and a validation part; None where that is not possible."""
        return None

    def check_classes(self, net: Any) -> None:  # noqa: B027  # the default does nothing
        """Raise ``BadInput`` for a classifier and targets of one class; a ``LoaderAdapter`` does so while it reads."""

    def to(self, device: torch.device) -> EncodedLoader:
        """Move rows in memory to a device."""
        return self

    def pin(self) -> None:  # noqa: B027  # the default does nothing
        """Pin the memory of batches, so that a GPU copies them while it computes."""

    @property
    def nbytes(self) -> int:
        """Bytes of the rows in memory."""
        return 0


class MappedLoader(EncodedLoader):
    """The batches of another loader, with rows that are changed when they are read."""

    def __init__(self, loader: EncodedLoader, change: Callable[[Batch], Batch]) -> None:
        self.loader, self.change = loader, change

    def __len__(self) -> int:
        return len(self.loader)

    def steps_of_process(self, processes: int) -> int:
        """Those of the loader."""
        return self.loader.steps_of_process(processes)

    def __iter__(self) -> Iterator[Any]:
        for rows, *rest in self.loader:
            yield self.change(rows), *rest

    def set_epoch(self, epoch: int) -> None:
        """Pass the epoch on."""
        self.loader.set_epoch(epoch)

    @property
    def order(self) -> dict[str, Any] | None:
        """The order of the other loader."""
        return self.loader.order

    def skip(self, batches: int) -> None:
        """Let the next pass of the other loader leave out its first batches."""
        self.loader.skip(batches)

    def in_order(self) -> EncodedLoader:
        """The changed rows of the other loader, for validation."""
        return MappedLoader(self.loader.in_order(), self.change)

    def collect(self, limit: int) -> Any:
        """The rows that the other loader collects, changed."""
        rows, *rest = self.loader.collect(limit)
        return self.change(rows), *rest


def concatenate_items(items: Sequence[Item]) -> tuple[Any, ...]:
    """Rows, targets and weights of several items, as those of one."""
    rows, *rest = zip(*items, strict=True)
    return Batch.concatenate(rows), *(torch.cat(list(parts)) for parts in rest)


def check_whole(name: str, value: Any, least: int) -> int:
    """The value as a Python int; ``InvalidOption`` unless it is a whole number, NumPy's too, of at least ``least``."""
    if not is_whole_number(value, least):
        raise InvalidOption(f"{name}={value!r} must be a whole number from {least}")
    return int(value)


def share_steps(steps: int, processes: int) -> int:
    """The steps of each process, where ``steps`` are those of all until Lightning has connected the processes."""
    return steps if world() > 1 else -(-steps // max(processes, 1))
