"""Rows of a loader in memory, and two halves of them: one to choose by, the other to test the choice on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from windtunnel.encode import Batch

MAX_ROWS = 200_000
"""Rows that are collected of a loader, and that interactions are selected on."""

Items = tuple[Any, ...]
"""Rows, targets, and weights where the loader yields them."""


def take(items: Items, index: Tensor) -> Items:
    """Rows by their numbers, or by a mask."""
    return Batch(items[0].numbers[index], items[0].ids[index]), *(block[index] for block in items[1:])


def halves(items: Items, order: Tensor) -> list[Items]:
    """Two halves of the rows ``order``; each half keeps the rows in the order in which the loader yields them.

    So groups of neighbouring rows stay stretches of time where rows are sorted by time. On flights and bookings in the
    order of their dates, the standard error of a gain is two to four times that of rows in a random order.
    """
    return [take(items, index.sort().values) for index in order.tensor_split(2)]


def random_order(items: Items, generator: torch.Generator) -> Tensor:
    """Numbers of the rows of a weight above 0 in random order."""
    order = torch.randperm(len(items[1]), generator=generator)
    return order if len(items) == 2 else order[items[2].cpu()[order] > 0]


def weighted_rows(items: Items) -> tuple[Items, Tensor | None]:
    """The rows with a weight above 0 and their mask, bool ``[N]``.

    All rows and None if every weight, or no weight, is above 0.
    """
    if len(items) == 2 or bool((mask := items[2] > 0).all()) or not mask.any():
        return items, None
    return take(items, mask), mask
