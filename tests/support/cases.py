"""The case table: all fitted pipelines of ``tests/families``, which contain every class of ``windtunnel.supported()``.

``tests/api/test_translate.py`` runs its checks over the whole table.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from case import Case
from sklearn.base import BaseEstimator

from windtunnel.translators.scikit_learn_version import scikit_learn_before

FOLDER = Path(__file__).parents[1] / "families"
FAMILIES = sorted(".".join(path.relative_to(FOLDER).with_suffix("").parts) for path in FOLDER.rglob("[a-z]*.py"))


def _collected() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for family in FAMILIES:
        for case in import_module(f"families.{family}").CASES:
            assert case.id not in cases, f"two cases are called {case.id!r}"
            if not case.since or not scikit_learn_before(case.since):
                cases[case.id] = case
    return cases


CASES = _collected()
LONG_RUN = "WINDTUNNEL_FUZZ" in os.environ
"""Whether tests that take a part of the table in ``make test`` take all of it."""


def parametrized(*cases: Case) -> Any:
    """``@parametrized()`` runs a test over the whole table, ``@parametrized(*TREES)`` over a part of it."""
    marks = [] if cases else [pytest.mark.whole_table]
    cases = cases or tuple(CASES.values())
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.id, marks=marks) for case in cases])


def estimators(fitted: Any) -> Iterator[Any]:
    """Every estimator inside a fitted one, itself included."""
    seen: set[int] = set()
    stack = [fitted]
    while stack:
        value = stack.pop()
        if id(value) in seen or isinstance(value, type):
            continue
        seen.add(id(value))
        if isinstance(value, np.ndarray):
            stack += value.ravel().tolist() if value.dtype == object else []
        elif isinstance(value, (list, tuple)):
            stack += [part for part in value if not isinstance(part, (str, bytes, int, float))]
        elif isinstance(value, dict):
            stack += value.values()
        elif hasattr(value, "predict") or isinstance(value, BaseEstimator):
            yield value
            attributes = getattr(value, "__dict__", {}).items()
            stack += [part for name, part in attributes if name.endswith("_") or name in ("steps", "transformer_list")]
