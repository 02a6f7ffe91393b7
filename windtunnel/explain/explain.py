"""Explain the raw scores of rows: the procedure."""

from __future__ import annotations

from functools import partial
from itertools import combinations
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from windtunnel.encode import Batch, Rows
from windtunnel.errors import BadInput
from windtunnel.explain.contributions import Background, Contributions, ScorePart
from windtunnel.explain.explanation import Explanation
from windtunnel.program.head import Head
from windtunnel.program.installed_residuals import InstalledResiduals
from windtunnel.program.program import slot_of
from windtunnel.program.raw_columns import RawColumns
from windtunnel.program.terms.installed_terms import installed_terms
from windtunnel.program.translated import TranslatedPipeline


def explain(net: TranslatedPipeline, rows: Rows, background: Rows | None = None, *, samples: int = 50) -> Explanation:
    """Contributions of the raw columns, and of the interactions of a residual model, to the raw scores of rows.

    See ``Translation.explain``.
    """
    if net.head.task == "transform":
        raise BadInput("this pipeline ends in a transformer, so there is no score to explain; add a final predictor.")
    if net.program.needs_all_rows():
        raise BadInput("the score of a row depends on the other rows, so that contributions to it are not defined.")
    if not isinstance(samples, Integral) or samples < 2:
        raise BadInput(f"samples={samples!r}; give a whole number from 2, as the standard error needs two.")
    encoded = net.encode(rows)  # steps on the host learn the names of their columns here
    if encoded.ids.shape[0] == 0:
        raise BadInput("got 0 rows; at least 1 is needed to explain.")
    net.scores(encoded)  # raises for what ``predict`` rejects
    raw, compared = RawColumns.of(net), None if background is None else _background_rows(net, background)
    of_columns = _of_pipeline(net, raw).contributions(encoded, partial(_background, net, encoded, compared), samples)
    of_columns = of_columns.times(InstalledResiduals.of(net.program).pipeline_weight)
    columns: list[tuple[int, ...]] = [(column,) for column in range(len(raw.names))]
    values, base, methods = of_columns.values, of_columns.base, [("pipeline", of_columns.method)]
    for terms in installed_terms(net, raw):
        added, start = terms.of_rows(encoded)
        values, columns = _join(values, columns, added, terms.columns)
        base = base + start
        methods.append((terms.KIND, terms.method))
    return Explanation(
        values=values,
        base=base,
        columns=tuple(tuple(raw.names[column] for column in each) for each in columns),
        data=raw.values(net.encoder, rows, encoded),
        outputs=_outputs(net.head, len(of_columns.base)),
        unit=net.head.unit,
        method="; ".join(map(": ".join, methods)) if len(methods) > 1 else of_columns.method,
        standard_error=_standard_error(of_columns, len(columns)),
    )


def _of_pipeline(net: TranslatedPipeline, raw: RawColumns) -> ScorePart:
    """The scores of the pipeline, without those of residual models."""
    width = net.run_in_slices(net.program, net.encoder.zeros(1)).shape[1]
    slot = slot_of(InstalledResiduals.of(net.program).pipeline)
    return ScorePart(net, raw, slot, list(range(width)))


def _background_rows(net: TranslatedPipeline, background: Rows) -> Background:
    """The rows that were given to compare with, encoded, whether the parts of the model need them or not."""
    batch = net.encode(background)
    if len(batch.ids) < 2:
        raise BadInput(f"background has {len(batch.ids)} rows; give at least 2, such as a hundred training rows")
    net.scores(batch)  # raises for what ``predict`` rejects
    return Background(batch, f"{len(batch.ids):,} background rows")


def _background(net: TranslatedPipeline, rows: Batch, background: Background | None) -> Background:
    """The rows that contributions are measured against: those given, else drawn from the profile, else the explained.

    Drawn rows have the frequencies of the training rows in each column, and independent columns.
    """
    if background is not None:
        return background
    drawn = None if net.profile is None else net.profile.background(net.encoder)
    if drawn is not None:
        return Background(drawn, f"{len(drawn.ids):,} rows drawn column by column from the profile of training rows")
    if len(rows.ids) < 2:
        raise BadInput(
            "one row has no others to compare it with, which this model needs: give several, or background=, such as a "
            "hundred training rows. A translation that fit or calibrate= has shown training rows needs none, unless it "
            "counts terms of texts."
        )
    return Background(rows, f"the {len(rows.ids):,} explained rows themselves")


def _join(
    values: NDArray[np.float64],
    terms: list[tuple[int, ...]],
    added: NDArray[np.float64],
    added_terms: list[tuple[int, ...]],
) -> tuple[NDArray[np.float64], list[tuple[int, ...]]]:
    """Values ``[B, terms, K]`` plus those of other terms, which may be the same."""
    every = list(dict.fromkeys([*terms, *added_terms]))
    place = {term: position for position, term in enumerate(every)}
    joined = np.zeros((values.shape[0], len(every), values.shape[2]))
    joined[:, : len(terms)] = values
    joined[:, [place[term] for term in added_terms]] += added
    return joined, every


def _standard_error(of_columns: Contributions, terms: int) -> NDArray[np.float64] | None:
    """The standard errors of the columns, and 0 for the interactions, which are exact."""
    if of_columns.standard_error is None:
        return None
    return np.pad(of_columns.standard_error, ((0, 0), (0, terms - len(of_columns.standard_error[0])), (0, 0)))


def _outputs(head: Head, count: int) -> tuple[str, ...]:
    """A name for each raw score: the label that it speaks for, or of support vector machines the two it compares."""
    labels = [str(label) for label in head.labels_in_order]
    if count == 1:
        return (labels[1] if len(labels) == 2 else "prediction",)
    if head.is_pairwise:
        return tuple(f"{one} rather than {other}" for one, other in combinations(labels, 2))
    return tuple(labels) if len(labels) == count else tuple(f"output {k}" for k in range(count))
