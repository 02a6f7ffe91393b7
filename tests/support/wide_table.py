"""A table of eight numbers and four texts, most of which a model does not need."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder

import windtunnel

NUMBERS = [f"n{at}" for at in range(8)]
TEXTS = [f"c{at}" for at in range(4)]


def table(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    """Numbers of sizes from 1 to 1000, and texts."""
    random = np.random.default_rng(seed)
    numbers = {name: random.normal(size=rows) * 10.0 ** (at % 4) for at, name in enumerate(NUMBERS)}
    texts = {name: np.array(list("abcdefgh"), dtype=object)[random.integers(0, 8, rows)] for name in TEXTS}
    return pd.DataFrame(numbers | texts)


FRAME = table()
LABEL = (FRAME["n0"] + FRAME["n1"] / 10 + (FRAME["c0"] == "a") > 0).to_numpy()


def one_hot() -> OneHotEncoder:
    return OneHotEncoder(handle_unknown="ignore", sparse_output=False)


def few_trees() -> LGBMClassifier:
    return LGBMClassifier(n_estimators=3, num_leaves=4, verbosity=-1, n_jobs=1)


def modules(net: windtunnel.Translation) -> list[Any]:
    return [step.module for step in net.program.steps]


def bins(**options: Any) -> KBinsDiscretizer:
    return KBinsDiscretizer(4, quantile_method="averaged_inverted_cdf", **options)


def probabilities(source: Any, rows: pd.DataFrame) -> np.ndarray | None:
    """Probabilities; None where rows are rejected."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.asarray(source.predict_proba(rows))
    except ValueError:
        return None
