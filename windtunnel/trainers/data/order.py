"""Loaders that can begin in the middle of an epoch, and what their order follows from."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Protocol

from windtunnel.errors import BadInput

ROWS = ("rows", "targets", "row_groups")
"""The facts that tell rows from other ones; the others are those of their order."""


class Resumable(Protocol):
    """Batches in an order that follows from a few facts, so that a pass can begin in the middle of an epoch."""

    skipped: int

    @property
    def order(self) -> dict[str, Any]:
        """The facts, as JSON values."""
        ...

    def skip(self, batches: int) -> None:
        """Let the next pass begin after so many batches."""
        ...


def resumable(loader: Any) -> Resumable | None:
    """The batches behind a loader that can begin in the middle of an epoch; None where there are no such."""
    while loader is not None and not hasattr(loader, "skip"):
        loader = behind(loader)
    return loader  # type: ignore[no-any-return]


def order_of(loader: Any, processes: int) -> dict[str, Any] | None:
    """What the order of its batches follows from, but for the epoch; None where it cannot be resumed."""
    source, workers = resumable(loader), 0
    while loader is not source:
        workers = getattr(loader, "num_workers", workers)
        loader = behind(loader)
    return None if source is None else {**source.order, "workers": workers, "processes": processes}


def same_rows(loader: Any) -> dict[str, Any] | None:
    """What tells its rows from others, whatever their order; None of a loader of which that is not known."""
    source = resumable(loader)
    return None if source is None else {name: source.order[name] for name in ROWS if name in source.order}


def whole(name: str, value: Any, least: int) -> int:
    """A number that an order follows from, NumPy's too, as one that checkpoints hold."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise BadInput(f"{name}={value!r} must be a whole number from {least}")
    return int(value)


def behind(loader: Any) -> Any:
    """What a loader reads from, which may be empty or have no length; None where it reads from nothing else."""
    inner = getattr(loader, "loader", None)
    return getattr(loader, "dataset", None) if inner is None else inner
