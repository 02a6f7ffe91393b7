"""Summaries of a fit for its history: terms of the residual model, and calibration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.objectives.losses import Loss
from windtunnel.program.program import NUMBERS
from windtunnel.program.raw_columns import RawColumns
from windtunnel.program.records.fit_details import Calibration, CellSummary, Reliability, TermSummary
from windtunnel.program.terms.boosted_terms import BoostedTerms
from windtunnel.program.terms.installed_terms import installed_terms
from windtunnel.program.terms.terms import Terms
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.labelled_rows import LabelledRows

TERMS, CELLS = 20, 3
"""Terms and cells of each that a history keeps: those with the largest contributions."""
LEAST = 0.01
"""The least mean contribution of a term, as a fraction of the largest one."""
SAMPLE = 1000
BINS = 10


def reliability(net: TranslatedPipeline, labelled: LabelledRows, scores: Tensor | None = None) -> Reliability | None:
    """Predicted and observed frequencies; None unless the source predicts probabilities of classes of one target.

    ``scores`` are raw scores of the rows, ``[N, K]``, in the place of those of the translation.
    """
    head = net.head
    if head.has_several_targets or len(head.labels_in_order) < 2 or "predict_proba" not in head.methods:
        return None
    target = labelled.targets.target.cpu().numpy()
    probabilities = net.predict_proba(labelled.rows) if scores is None else net.head.probabilities(scores).numpy()
    if probabilities.shape[1] == 2:
        predicted, hit = probabilities[:, 1], target == 1
    else:
        predicted, hit = probabilities.max(axis=1), probabilities.argmax(axis=1) == target
    row_weight = labelled.targets.weight
    weight = np.ones(len(hit)) if row_weight is None else row_weight.cpu().double().numpy()
    place = np.clip((predicted * BINS).astype(int), 0, BINS - 1)
    sums = np.bincount(place, weight, BINS)
    full = sums > 0
    means = [np.bincount(place, weight * values, BINS)[full] / sums[full] for values in (predicted, hit)]
    return Reliability(*(tuple(map(float, part)) for part in (*means, sums[full] / sums.sum())))


def calibration(
    before: Reliability | None, net: TranslatedPipeline, rows: LabelledRows | None, scores: Tensor | None = None
) -> Calibration | None:
    """The calibration before training and after it; None without rows, or if the source predicts no probabilities.

    ``scores``: see ``reliability``.
    """
    if before is None or rows is None or (after := reliability(net, rows, scores)) is None:
        return None
    return Calibration(before, after, len(rows))


def summarise_terms(
    net: TranslatedPipeline, train: LabelledRows, valid: LabelledRows, loss: Loss, scores: Tensor | None = None
) -> list[TermSummary]:
    """The terms with the largest mean contributions, of the residual model and of the boosted residual.

    Those of a boosted residual are computed on ``SAMPLE`` rows, as its Shapley values take time. ``scores`` are raw
    scores of the validation rows, ``[N, K]``, in the place of those of the translation.
    """
    raw, summaries = RawColumns.of(net), list[tuple[float, TermSummary]]()
    scored = valid.with_rows(net.scores(valid.rows) if scores is None else scores)
    for terms in installed_terms(net, raw):
        few, all_codes = isinstance(terms, BoostedTerms), terms.coded.codes(train.rows)
        some_train, some_valid, some_scored = (sample(rows) if few else rows for rows in (train, valid, scored))
        (of_train, _), (of_valid, _) = terms.of_rows(some_train.rows), terms.of_rows(some_valid.rows)
        codes = terms.coded.codes(some_train.rows) if few else all_codes
        summaries += TermsOfRows(net, raw, terms, some_scored, of_train, of_valid, codes, all_codes).summaries(loss)
    largest = max((size for size, _ in summaries), default=0.0)
    strong = sorted((each for each in summaries if each[0] >= LEAST * largest), key=lambda each: -each[0])
    return [summary for _, summary in strong[:TERMS]]


def sample(rows: LabelledRows) -> LabelledRows:
    """At most ``SAMPLE`` rows, evenly spaced."""
    count = len(rows)
    return rows.take(torch.linspace(0, count - 1, min(count, SAMPLE), dtype=torch.float64).long())


@dataclass(frozen=True)
class TermsOfRows:
    """Terms of one kind, and their contributions ``[N, terms, K]`` to the scores of some rows."""

    net: TranslatedPipeline
    raw: RawColumns
    terms: Terms
    scored: LabelledRows  # raw scores of the validation rows ``[N, K]``
    of_train: NDArray[np.float64]
    of_valid: NDArray[np.float64]
    codes: NDArray[np.int64]  # ``[N, inputs]``, of the same training rows
    all_codes: NDArray[np.int64]  # of all training rows

    def summaries(self, loss: Loss) -> list[tuple[float, TermSummary]]:
        """The strongest terms, each behind its mean contribution."""
        size = np.abs(self.of_train).mean(axis=(0, 2))
        order = np.argsort(-size, kind="stable")[:TERMS].tolist()
        scores, targets = self.scored.rows, self.scored.targets
        with torch.no_grad():
            whole = float(loss(scores, *targets))
            without = {
                term: float(loss(scores - torch.from_numpy(self.of_valid[:, term]).to(scores), *targets))
                for term in order
            }
        return [
            (
                float(size[term]),
                TermSummary(
                    columns=tuple(self.raw.names[column] for column in self.terms.columns[term]),
                    gain=without[term] - whole,
                    low=float(self.of_train[:, term].min()),
                    high=float(self.of_train[:, term].max()),
                    cells=self._cells(term),
                    boosted=isinstance(self.terms, BoostedTerms),
                ),
            )
            for term in order
        ]

    def _cells(self, term: int) -> tuple[CellSummary, ...]:
        """The combinations of values with the largest sums of contributions to a score.

        By their means, cells of a single row would come first.
        """
        inputs = self.terms.inputs_of(term)
        groups = pd.DataFrame(self.codes[:, inputs]).groupby([*range(len(inputs))])
        counts = groups.size()
        cells, place = counts.index.to_frame().to_numpy(), groups.ngroup().to_numpy()
        sums = np.stack([np.bincount(place, score) for score in self.of_train[:, term].T], axis=1)
        means = sums / counts.to_numpy()[:, None]
        labels = [str(label) for label in self.net.head.labels_in_order] if means.shape[1] > 1 else []
        strongest = np.argsort(-np.abs(sums).max(axis=1), kind="stable")[:CELLS]
        outputs = np.abs(means).argmax(axis=1)
        return tuple(
            CellSummary(
                values=self._text(inputs, cells[cell].tolist()),
                contribution=float(means[cell, outputs[cell]]),
                rows=int((self.all_codes[:, inputs] == cells[cell]).all(axis=1).sum()),
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
