"""Summaries of the terms of residual models, for the history of a fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.encode.evenly_spaced import evenly_spaced
from windtunnel.objectives.losses import Loss
from windtunnel.program.program import NUMBERS
from windtunnel.program.raw_columns import RawColumns
from windtunnel.program.records.fit_details import CellSummary, TermSummary
from windtunnel.program.terms.boosted_terms import BoostedTerms
from windtunnel.program.terms.installed_terms import installed_terms
from windtunnel.program.terms.terms import Terms
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.labelled_rows import LabelledRows
from windtunnel.trainers.significance.group_losses import GroupLosses, group_losses

TERMS, CELLS = 20, 3
"""Terms and cells of each that a history keeps: those with the largest contributions."""
LEAST = 0.01
"""The least mean contribution of a term, as a fraction of the largest one."""
SAMPLE = 1000
"""Rows for the contributions of a boosted residual, whose Shapley values take time."""


def summarise_terms(
    net: TranslatedPipeline, train: LabelledRows, valid: LabelledRows, loss: Loss, scores: Tensor | None = None
) -> list[TermSummary]:
    """The terms with the largest mean contributions, of the residual model and of the boosted residual.

    ``scores`` are raw scores of the validation rows, ``[N, K]``, in the place of those of the translation.
    """
    raw, scores = RawColumns.of(net), net.scores(valid.rows) if scores is None else scores
    valid, scores = valid.counted(), valid.with_rows(scores).counted().rows
    if len(valid) == 0:
        return []
    summaries = [
        summary
        for terms in installed_terms(net, raw)
        for summary in TermsOfRows.of(net, raw, terms, train, valid, scores).summaries(loss)
    ]
    largest = max((each.size for each in summaries), default=0.0)
    strong = sorted((each for each in summaries if each.size >= LEAST * largest), key=lambda each: -each.size)
    return [each.summary for each in strong[:TERMS]]


class SizedSummary(NamedTuple):
    """The summary of a term, and its mean contribution."""

    size: float
    summary: TermSummary


@dataclass(frozen=True)
class TermsOfRows:
    """Terms of one kind, and their contributions ``[N, terms, K]`` to the scores of rows, or of a sample of them."""

    net: TranslatedPipeline
    raw: RawColumns
    terms: Terms
    on_train: NDArray[np.float64]  # contributions to the scores of training rows
    on_valid: NDArray[np.float64]
    scored_valid: LabelledRows  # raw scores ``[N, K]`` of the same validation rows
    codes: NDArray[np.int64]  # ``[N, inputs]``, of the same training rows
    all_codes: NDArray[np.int64]  # of all training rows

    @classmethod
    def of(
        cls,
        net: TranslatedPipeline,
        raw: RawColumns,
        terms: Terms,
        train: LabelledRows,
        valid: LabelledRows,
        scores: Tensor,
    ) -> Self:
        """The terms of one kind; ``scores`` are those of the validation rows."""
        all_codes, scored_valid = terms.coded.codes(train.rows), valid.with_rows(scores)
        codes = all_codes
        if isinstance(terms, BoostedTerms):
            train, valid, scored_valid = (
                rows.take(evenly_spaced(len(rows), SAMPLE)) for rows in (train, valid, scored_valid)
            )
            codes = terms.coded.codes(train.rows)
        (on_train, _), (on_valid, _) = terms.of_rows(train.rows), terms.of_rows(valid.rows)
        return cls(net, raw, terms, on_train, on_valid, scored_valid, codes, all_codes)

    def summaries(self, loss: Loss) -> list[SizedSummary]:
        """Those of the terms with the largest mean contributions."""
        size = np.abs(self.on_train).mean(axis=(0, 2))
        strongest = np.argsort(-size, kind="stable")[:TERMS].tolist()
        whole = self._losses_without(None, loss)
        gains = {term: self._losses_without(term, loss) - whole for term in strongest}
        return [
            SizedSummary(
                float(size[term]),
                TermSummary(
                    columns=tuple(self.raw.names[column] for column in self.terms.columns[term]),
                    gain=gains[term].mean,
                    standard_error=gains[term].standard_error,
                    rows=len(self.scored_valid),
                    low=float(self.on_train[:, term].min()),
                    high=float(self.on_train[:, term].max()),
                    cells=self._cells(term),
                    boosted=isinstance(self.terms, BoostedTerms),
                ),
            )
            for term in strongest
        ]

    def _losses_without(self, term: int | None, loss: Loss) -> GroupLosses:
        """The losses of groups of validation rows without the contributions of a term; None takes none away."""
        scores, targets = self.scored_valid.rows, self.scored_valid.targets
        if term is not None:
            scores = scores - torch.from_numpy(self.on_valid[:, term]).to(scores)
        with torch.no_grad():
            return group_losses(loss, scores, targets)

    def _cells(self, term: int) -> tuple[CellSummary, ...]:
        """The combinations of values with the largest sums of contributions to a score of all training rows.

        By their means, cells of a single row would come first. Of a sample of the rows the mean of a cell stands for
        that of all of its rows.
        """
        inputs = self.terms.inputs_of(term)
        groups = pd.DataFrame(self.codes[:, inputs]).groupby([*range(len(inputs))])
        counts = groups.size()
        cells, place = counts.index.to_frame().to_numpy(), groups.ngroup().to_numpy()
        sums = np.stack([np.bincount(place, score) for score in self.on_train[:, term].T], axis=1)
        means = sums / counts.to_numpy()[:, None]
        labels = [str(label) for label in self.net.head.labels_in_order] if means.shape[1] > 1 else []
        rows = pd.DataFrame(self.all_codes[:, inputs]).groupby([*range(len(inputs))]).size()
        rows_of_cell = rows.reindex(counts.index).to_numpy()
        strongest = np.argsort(-np.abs(means).max(axis=1) * rows_of_cell, kind="stable")[:CELLS]
        outputs = np.abs(means).argmax(axis=1)
        return tuple(
            CellSummary(
                values=self._text(inputs, cells[cell].tolist()),
                contribution=float(means[cell, outputs[cell]]),
                rows=int(rows_of_cell[cell]),
                output=labels[outputs[cell]] if labels else "",
            )
            for cell in strongest.tolist()
        )

    def _text(self, inputs: list[int], codes: list[int]) -> str:
        """The values of a cell, such as "origin=ORD x hour=18".

        A raw column with several ids shows its known value, one with several numbers (year and month of a date) all of
        them, and one with counts of terms the terms that occur.
        """
        encoder, coded = self.net.encoder, self.terms.coded
        texts: dict[str, list[str]] = {}
        terms_counted = {column: term for host in self.net.hosts for column, term in host.terms.items()}
        for column, code in zip(inputs, codes, strict=True):
            values = texts.setdefault(self.raw.names[coded.sources[column]], [])
            value = coded.value_text(encoder, column, code)
            block, place = coded.inputs[column]
            if block == NUMBERS and (term := terms_counted.get(encoder.numbers[place])) is not None:
                if not coded.is_zero(column, code):
                    values.append(f" {term!r}{value}")
            elif block == NUMBERS:
                values.append(value)
            elif values in ([], [" unknown"]):
                values[:] = [value]
        return " x ".join(name + (",".join(values) or " without these terms") for name, values in texts.items())
