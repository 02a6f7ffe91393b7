"""Batches with init scores: the raw scores of a pipeline, K further columns after the numbers of each row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from windtunnel.encode import Batch
from windtunnel.program.program import Program
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.encoded_loader import EncodedLoader

ROWS_AT_ONCE = 65_536


class InitScorer:
    """Scores rows with a given program, with the encoder of a translation."""

    def __init__(self, net: TranslatedPipeline, program: Program) -> None:
        self.net, self.program = net, program

    def add_to(self, loader: EncodedLoader) -> EncodedLoader:
        """The batches of a loader with init scores: the loader's ``scores``, else those of the program."""
        scores = loader.scores
        return loader.map(self.add_init_scores, None if scores is None else lambda rows: append_scores(rows, scores))

    def add_init_scores(self, rows: Batch) -> Batch:
        """Rows with init scores."""
        return append_scores(rows, self.scores(*rows))

    def split(self, rows: Batch) -> tuple[Batch, Tensor]:
        """Rows without init scores, and these ``[N, K]``."""
        return split_scores(rows, rows.numbers.shape[1] - len(self.net.encoder.numbers))

    def scores(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """The output of the program."""
        return self.net.run_in_slices(self.program, Batch(numbers, ids))


@dataclass(frozen=True)
class ResidualInputs:
    """The columns of a batch that a residual model reads: positions among its numbers, and among its ids."""

    numbers: list[int]
    ids: list[int]

    def select(self, rows: Batch) -> Batch:
        """Rows without init scores, with these columns only."""
        return Batch(rows.numbers[:, self.numbers], rows.ids[:, self.ids])


def append_scores(rows: Batch, scores: Tensor) -> Batch:
    """Rows with init scores."""
    return Batch(torch.cat([rows.numbers, scores.to(rows.numbers)], dim=1), rows.ids)


def split_scores(rows: Batch, outputs: int) -> tuple[Batch, Tensor]:
    """Rows without init scores, and these ``[N, outputs]``."""
    return Batch(rows.numbers[:, :-outputs], rows.ids), rows.numbers[:, -outputs:]


def concat(rows: Batch) -> Tensor:
    """Numbers and ids in one tensor, as a residual model takes them."""
    return torch.cat([rows.numbers, rows.ids.to(rows.numbers.dtype)], dim=1)


def in_row_blocks(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Apply a function to ``ROWS_AT_ONCE`` rows at a time, which bounds its memory."""
    with torch.no_grad():
        return torch.cat([function(part) for part in torch.split(x, ROWS_AT_ONCE)])
