"""The one table of pipelines: what is fitted, on which columns, and the rows that it is asked about.

Every class of ``windtunnel.supported()`` is somewhere in it, and ``test_translate.py`` runs each check over all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from case import Case
from sklearn.base import BaseEstimator

FAMILIES = sorted(one.stem for one in (Path(__file__).parents[1] / "families").glob("[a-z]*.py"))


def _collected() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for family in FAMILIES:
        for case in import_module(f"families.{family}").CASES:
            assert case.id not in cases, f"two cases are called {case.id!r}"
            cases[case.id] = case
    return cases


CASES = _collected()


def parametrized(*wanted: Case) -> Any:
    """``@parametrized()`` runs a test over the whole table, ``@parametrized(*TREES)`` over a part of it."""
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in wanted or CASES.values()])


def estimators(fitted: Any) -> Iterator[Any]:
    """Every estimator inside a fitted one, itself included."""
    seen: set[int] = set()
    stack = [fitted]
    while stack:
        one = stack.pop()
        if id(one) in seen or isinstance(one, type):
            continue
        seen.add(id(one))
        if isinstance(one, np.ndarray):
            stack += one.ravel().tolist() if one.dtype == object else []
        elif isinstance(one, (list, tuple)):
            stack += [part for part in one if not isinstance(part, (str, bytes, int, float))]
        elif isinstance(one, dict):
            stack += one.values()
        elif hasattr(one, "predict") or isinstance(one, BaseEstimator):
            yield one
            stack += [
                v
                for name, v in getattr(one, "__dict__", {}).items()
                if name.endswith("_") or name in ("steps", "transformer_list")
            ]
