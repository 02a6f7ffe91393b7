"""scikit-learn's SplineTransformer."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.preprocessing import SplineTransformer

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.columns.spline import Spline
from windtunnel.translators.arrays import dense, tensor
from windtunnel.translators.registry import translates

Array = NDArray[np.float64]


@translates(SplineTransformer, notes="no parameters; gradients pass through; missing values as handle_missing has them")
def spline_transformer(fitted: SplineTransformer) -> Spline:
    """B-splines of each column. Reads bsplines_, degree, extrapolation, include_bias and sparse_output."""
    fitted = copy.deepcopy(fitted)  # SciPy's splines make their arrays contiguous when they are called
    ends = [_ends(spline, degree, fitted) for spline, degree in zip(fitted.bsplines_, _degrees(fitted), strict=True)]
    low, high, start, start_slope, end, end_slope = (np.stack(facts) for facts in zip(*ends, strict=True))
    facts = {"low": low, "high": high, "start": start, "start_slope": start_slope, "end": end, "end_slope": end_slope}
    spline = Spline(
        tensor(np.stack([spline.t for spline in fitted.bsplines_])),
        **{name: tensor(fact) for name, fact in facts.items()},
        degree=fitted.degree,
        extrapolation=fitted.extrapolation,
        bias=fitted.include_bias,
        takes_missing=_missing(fitted) == "zeros",
    )
    _verify(fitted, spline)
    return spline


def _missing(fitted: SplineTransformer) -> str:
    """The way missing values are handled; scikit-learn 1.9 added the option."""
    return getattr(fitted, "handle_missing", "error")


def _degrees(fitted: SplineTransformer) -> list[int]:
    """The number of splines that continue beyond either end of each column."""
    degree, degrees = fitted.degree, []
    for _ in fitted.bsplines_:
        degrees.append(degree)
        # scikit-learn 1.9 adds 1 to the degree of the linear continuation with each column, up to 2.
        if fitted.extrapolation == "linear" and degree <= 1:
            degree += 1
    return degrees


def _ends(spline: Any, degree: int, fitted: SplineTransformer) -> tuple[Any, Any, Array, Array, Array, Array]:
    """The ends of a column, and the values and slopes of its splines there."""
    knots = np.asarray(spline.t, dtype=np.float64)
    low, high = knots[degree], knots[-degree - 1]
    count = spline.c.shape[1]
    none = np.zeros((4, count))
    if fitted.extrapolation not in ("constant", "linear"):
        return low, high, *none
    start, start_slope, end, end_slope = none
    kept = degree + 1 if fitted.extrapolation == "linear" and degree <= 1 else degree
    first, last = slice(0, kept), slice(max(0, count - kept), count)
    start[first], end[last] = spline(low)[first], spline(high)[last]
    if fitted.extrapolation == "linear":
        start_slope[first], end_slope[last] = spline(low, nu=1)[first], spline(high, nu=1)[last]
    return low, high, start, start_slope, end, end_slope


def _verify(fitted: SplineTransformer, spline: Spline) -> None:
    """Compare the module with the source on a grid over the knots and beyond."""
    knots = spline.knots.numpy()
    first, last = knots[:, fitted.degree], knots[:, -fitted.degree - 1]
    beyond = 0.0 if fitted.extrapolation == "error" else 0.4
    # The last row holds the last knots themselves.
    grid = np.clip(np.linspace(-beyond, 1 + beyond, 64), -beyond, 1 + beyond)[:, None]
    rows = np.concatenate([first + grid * (last - first), knots[:, fitted.degree : -fitted.degree or None].T])
    if fitted.extrapolation == "error":
        rows = np.clip(rows, first, last)
    if _missing(fitted) == "zeros":
        columns = np.arange(rows.shape[1])
        rows = np.concatenate([rows, np.where(np.eye(len(columns)) > 0, np.nan, first)])
    plain = SplineTransformer.__new__(SplineTransformer)
    plain.__dict__ = {name: value for name, value in vars(fitted).items() if name != "feature_names_in_"}
    try:
        expected = dense(plain.transform(rows))
    except Exception:  # it has raised on rows that it takes
        expected = np.zeros((0, 0))
    with torch.no_grad():
        translated = spline(torch.from_numpy(rows)).numpy()
    if translated.shape != expected.shape or not np.allclose(translated, expected, rtol=1e-10, atol=1e-10):
        raise UnsupportedEstimator(
            f"SplineTransformer with degree={fitted.degree}, extrapolation={fitted.extrapolation!r}, handle_missing="
            f"{_missing(fitted)!r}, sparse_output={fitted.sparse_output} over these knots gives other values than "
            "its splines have; give distinct knots, sparse_output=False or another degree"
        )
