"""Summaries of a fit for its history: terms of the residual model, and calibration."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.objectives.losses import Loss
from windtunnel.program.program import NUMBERS
from windtunnel.program.raw_columns import RawColumns
from windtunnel.program.records.fit_details import Calibration, CellSummary, Reliability, TermSummary
from windtunnel.program.terms.boosted_terms import BoostedTerms, boosted_terms
from windtunnel.program.terms.residual_terms import ResidualTerms, residual_terms
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.residual.validation_rows import Items, take

TERMS, CELLS = 20, 3
"""Terms and cells of each that a history keeps: those with the largest contributions."""
LEAST = 0.01
"""The least mean contribution of a term, as a fraction of the largest one."""
SAMPLE = 1000
BINS = 10


def reliability(net: TranslatedPipeline, rows: Items) -> Reliability | None:
    """Predicted and observed frequencies; None unless the source predicts probabilities of classes of one target."""
    classes = net.head.classes
    if classes is None or isinstance(classes, list) or len(classes) < 2 or "predict_proba" not in net.head.methods:
        return None
    batch, target, *rest = rows
    probabilities = net.head.probabilities(net.scores(batch)).numpy()
    if probabilities.shape[1] == 2:
        predicted, hit = probabilities[:, 1], target.cpu().numpy() == 1
    else:
        predicted, hit = probabilities.max(axis=1), probabilities.argmax(axis=1) == target.cpu().numpy()
    weight = np.ones(len(hit)) if not rest or rest[0] is None else rest[0].cpu().double().numpy()
    place = np.clip((predicted * BINS).astype(int), 0, BINS - 1)
    sums = np.bincount(place, weight, BINS)
    full = sums > 0
    means = [np.bincount(place, weight * values, BINS)[full] / sums[full] for values in (predicted, hit)]
    return Reliability(*(tuple(map(float, part)) for part in (*means, sums[full] / sums.sum())))


def calibration(before: Reliability | None, net: TranslatedPipeline, rows: Items) -> Calibration | None:
    """The calibration before training and after it; None where the source predicts no probabilities."""
    after = None if before is None else reliability(net, rows)
    return None if before is None or after is None else Calibration(before, after, len(rows[1]))


def summarise_terms(net: TranslatedPipeline, train: Items, valid: Items, loss: Loss) -> list[TermSummary]:
    """The terms with the largest mean contributions, of the residual model and of the boosted residual.

    Those of a boosted residual are computed on ``SAMPLE`` rows, as its Shapley values take time.
    """
    raw, summaries = RawColumns.of(net), []
    if (terms := residual_terms(net.program, raw)) is not None:
        of_rows = terms.of_rows(train[0]), terms.of_rows(valid[0])
        summaries += _summaries(net, raw, terms, of_rows, train, valid, loss, terms.coded.codes(train[0]))
    if (boosted := boosted_terms(net, raw)) is not None:
        all_codes = boosted.coded.codes(train[0])
        train, valid = sample(train), sample(valid)
        of_rows = boosted.of_rows(train[0])[0], boosted.of_rows(valid[0])[0]
        summaries += _summaries(net, raw, boosted, of_rows, train, valid, loss, all_codes)
    largest = max((size for size, _ in summaries), default=0.0)
    strong = sorted((each for each in summaries if each[0] >= LEAST * largest), key=lambda each: -each[0])
    return [summary for _, summary in strong[:TERMS]]


def sample(items: Items) -> Items:
    """At most ``SAMPLE`` rows, evenly spaced."""
    count = len(items[1])
    return take(items, torch.linspace(0, count - 1, min(count, SAMPLE)).long())


def _summaries(
    net: TranslatedPipeline,
    raw: RawColumns,
    terms: ResidualTerms | BoostedTerms,
    contributions: tuple[NDArray[np.float64], NDArray[np.float64]],
    train: Items,
    valid: Items,
    loss: Loss,
    all_codes: NDArray[np.int64],
) -> list[tuple[float, TermSummary]]:
    """The strongest terms of one kind, each behind its mean contribution."""
    of_train, of_valid = contributions
    size = np.abs(of_train).mean(axis=(0, 2))
    order = np.argsort(-size, kind="stable")[:TERMS].tolist()
    codes = terms.coded.codes(train[0])
    scores, target, weight = net.scores(valid[0]), valid[1], (*valid[2:], None)[0]

    def loss_of(values: Tensor) -> float:
        return float(loss(values, target, weight))

    with torch.no_grad():
        whole = loss_of(scores)
        without = {term: loss_of(scores - torch.from_numpy(of_valid[:, term]).to(scores)) for term in order}
    summaries = [
        TermSummary(
            columns=tuple(raw.names[column] for column in terms.columns[term]),
            gain=without[term] - whole,
            low=float(of_train[:, term].min()),
            high=float(of_train[:, term].max()),
            cells=_cells(net, raw, terms, term, codes, all_codes, of_train[:, term]),
        )
        for term in order
    ]
    return [(float(size[term]), summary) for term, summary in zip(order, summaries, strict=True)]


def _cells(
    net: TranslatedPipeline,
    raw: RawColumns,
    terms: ResidualTerms | BoostedTerms,
    term: int,
    codes: NDArray[np.int64],
    all_codes: NDArray[np.int64],
    values: NDArray[np.float64],
) -> tuple[CellSummary, ...]:
    """The combinations of values with the largest sums of contributions to a score; rows are counted in all codes.

    By their means, cells of a single row would come first.
    """
    inputs = terms.inputs_of(term)
    groups = pd.DataFrame(codes[:, inputs]).groupby([*range(len(inputs))])
    counts = groups.size()
    cells, place = counts.index.to_frame().to_numpy(), groups.ngroup().to_numpy()
    sums = np.stack([np.bincount(place, score) for score in values.T], axis=1)
    means = sums / counts.to_numpy()[:, None]
    labels = [str(label) for label in net.head.labels_in_order] if means.shape[1] > 1 else []
    strongest = np.argsort(-np.abs(sums).max(axis=1), kind="stable")[:CELLS]
    outputs = np.abs(means).argmax(axis=1)
    return tuple(
        CellSummary(
            values=_cell_text(net, raw, terms, inputs, cells[cell].tolist()),
            contribution=float(means[cell, outputs[cell]]),
            rows=int((all_codes[:, inputs] == cells[cell]).all(axis=1).sum()),
            output=labels[outputs[cell]] if labels else "",
        )
        for cell in strongest.tolist()
    )


def _cell_text(
    net: TranslatedPipeline, raw: RawColumns, terms: ResidualTerms | BoostedTerms, inputs: list[int], codes: list[int]
) -> str:
    """The values of a cell, such as "origin=ORD x hour=18".

    Of a raw column with several ids the known value, with several numbers (year and month of a date) all of them, with
    counts of terms those that occur.
    """
    texts: dict[str, list[str]] = {}
    terms_counted = {column: term for host in net.hosts for column, term in host.terms.items()}
    for column, code in zip(inputs, codes, strict=True):
        values = texts.setdefault(raw.names[terms.coded.sources[column]], [])
        value = terms.coded.value_text(net.encoder, column, code)
        block, place = terms.coded.inputs[column]
        if block == NUMBERS and (term := terms_counted.get(net.encoder.numbers[place])) is not None:
            values += [f" {term!r}{value}"] * (value != " <= 0")
        elif block == NUMBERS:
            values.append(value)
        elif values in ([], [" unknown"]):
            values[:] = [value]
    return " x ".join(name + (",".join(values) or " without these terms") for name, values in texts.items())
