"""Compiled and translated nets of the case table, made once per process, and the comparison with their source."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from case import Case
from cases import CASES
from scipy import sparse

import windtunnel
from windtunnel.program.head import METHODS


@cache
def compiled(name: str, **options: Any) -> windtunnel.Translation:
    """The compiled pipeline of a case; copy it before you change it."""
    return windtunnel.compile(CASES[name].fitted(), **options)


@cache
def translated(name: str) -> windtunnel.Translation:
    """The translated pipeline of a case, calibrated on its training rows; copy it before you change it."""
    case = CASES[name]
    return windtunnel.translate(case.fitted(), calibrate=case.train()[0]).soften()


def source_output(source: Any, method: str, rows: Any) -> Any:
    """What a method of the source returns, dense; its warnings about unseen categories and log(0) are left out."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Found unknown categories", UserWarning)
        warnings.filterwarnings("ignore", "divide by zero encountered in log", RuntimeWarning)
        output = getattr(source, method)(rows)
    if isinstance(output, list):
        return [np.asarray(target) for target in output]
    return np.asarray(output.toarray() if sparse.issparse(output) else output)


@cache
def _expected(case: Case, method: str) -> Any:
    return source_output(case.fitted(), method, reindexed_rows(case))


def assert_case(case: Case, net: windtunnel.Translation) -> None:
    """All methods give for ``reindexed_rows(case)`` what the source gives, which is computed once per process."""
    _assert_same(case, net, case.fitted(), reindexed_rows(case), lambda method: _expected(case, method))


def assert_same(case: Case, net: windtunnel.Translation, source: Any, rows: Any, source_rows: Any = None) -> None:
    """All methods of ``net`` give for ``rows`` what those of ``source`` give for ``source_rows``, or for ``rows``."""
    source_rows = rows if source_rows is None else source_rows
    _assert_same(case, net, source, rows, lambda method: source_output(source, method, source_rows))


def _assert_same(
    case: Case, net: windtunnel.Translation, source: Any, rows: Any, expected: Callable[[str], Any]
) -> None:
    tolerance = case.tolerance if net.encoder.dtype == "float64" else case.coarse
    for method in METHODS:
        assert method == "apply" or hasattr(net, method) == hasattr(source, method), method
        if not hasattr(source, method):
            continue
        wanted, output = expected(method), getattr(net, method)(rows)
        assert isinstance(output, list) == isinstance(wanted, list), method
        for want, got in zip(wanted, output, strict=True) if isinstance(wanted, list) else [(wanted, output)]:
            assert got.shape == want.shape, method
            if method == "predict" and want.dtype.kind not in "f":
                assert got.dtype == want.dtype
                np.testing.assert_array_equal(got, want)
            else:
                np.testing.assert_allclose(got, want.astype(float), tolerance, tolerance, err_msg=method)


def reindexed_rows(case: Case) -> Any:
    """The rows of a case on a shuffled index; no DataFrame method was called on them before."""
    rows = case.rows()
    return rows if case.array else rows.set_axis(np.arange(len(rows))[::-1] * 7)
