"""Cases compiled or translated once for all tests, and what compares them with their source."""

from __future__ import annotations

import warnings
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
    """The compiled pipeline of a case; shared, so that a test that changes it takes a copy."""
    return windtunnel.compile(CASES[name].fitted(), **options)


@cache
def translated(name: str) -> windtunnel.Translation:
    case = CASES[name]
    return windtunnel.translate(case.fitted(), calibrate=case.train()[0])


def ask(source: Any, method: str, rows: Any) -> Any:
    """What the source answers, dense; with what it warns of awkward rows left out."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Found unknown categories", UserWarning)
        warnings.filterwarnings("ignore", "divide by zero encountered in log", RuntimeWarning)
        answer = getattr(source, method)(rows)
    if isinstance(answer, list):
        return [np.asarray(one) for one in answer]
    return np.asarray(answer.toarray() if sparse.issparse(answer) else answer)


def assert_same(case: Case, net: windtunnel.Translation, source: Any, given: Any, rows: Any = None) -> None:
    """All methods give for ``given`` what the source gives for ``rows``."""
    tolerance = case.tolerance if net.encoder.dtype == "float64" else case.coarse
    for method in METHODS:
        assert method == "apply" or hasattr(net, method) == hasattr(source, method), method
        if not hasattr(source, method):
            continue
        wanted, given_back = ask(source, method, given if rows is None else rows), getattr(net, method)(given)
        assert isinstance(given_back, list) == isinstance(wanted, list), method
        for want, got in zip(wanted, given_back, strict=True) if isinstance(wanted, list) else [(wanted, given_back)]:
            assert got.shape == want.shape, method
            if method == "predict" and want.dtype.kind not in "f":
                assert got.dtype == want.dtype
                np.testing.assert_array_equal(got, want)
            else:
                np.testing.assert_allclose(got, want.astype(float), tolerance, tolerance, err_msg=method)


def unlike(case: Case) -> Any:
    """Rows that no DataFrame method was called on before: the same values on a shuffled index."""
    rows = case.rows()
    return rows if case.array else rows.set_axis(np.arange(len(rows))[::-1] * 7)
