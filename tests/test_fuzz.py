"""Random pipelines on random awkward rows: the source's answers, its refusals, or a refusal by name."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from random_pipelines import ROWS, Drawn, pipelines

import windtunnel
from windtunnel.errors import UnsupportedEstimator
from windtunnel.head import METHODS

EXAMPLES = int(os.environ.get("WINDTUNNEL_FUZZ", "300"))
TOLERANCE = 1e-9


def quietly(call: Any, *given: Any) -> Any:
    """Call with the sources' warnings about awkward rows left out."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return call(*given)


def spoiled(frame: pd.DataFrame, seed: int) -> dict[str, pd.DataFrame]:
    """The rows as they are, and with one kind of trouble in each copy."""
    random = np.random.default_rng(seed)
    kinds = {"plain": frame}
    numbers = [name for name in frame if name.startswith("n") and frame[name].dtype.kind == "f"]
    texts = [name for name in frame if name.startswith("t") and frame[name].dtype == object]
    for kind, value in (("missing", np.nan), ("infinite", np.inf), ("huge", 1e300), ("denormal", 5e-324)):
        if numbers:
            kinds[kind] = frame.copy()
            kinds[kind].loc[random.integers(len(frame)), random.choice(numbers)] = value
    if texts:
        kinds["unseen"] = frame.copy()
        kinds["unseen"].loc[random.integers(len(frame)), random.choice(texts)] = "never seen"
    return kinds


def sure(source: Any, rows: Any) -> Any:
    """The rows whose label does not hang on the last bit of two equal scores."""
    for method in ("decision_function", "predict_proba"):
        if hasattr(source, method):
            scores = np.asarray(quietly(getattr(source, method), rows))
            if scores.ndim == 1:
                return np.abs(scores) > TOLERANCE
            ordered = np.sort(scores, axis=1)
            return ordered[:, -1] - ordered[:, -2] > TOLERANCE if scores.shape[1] > 1 else np.full(len(scores), True)
    return slice(None)


def compare(source: Any, net: Any, rows: Any) -> None:
    for method in METHODS:
        if method == "apply" or not hasattr(source, method):
            continue
        assert hasattr(net, method), method
        try:
            want = quietly(getattr(source, method), rows)
        except ValueError:
            with pytest.raises(ValueError):  # ours, or that of a step on the host
                quietly(getattr(net, method), rows)
            continue
        got = quietly(getattr(net, method), rows)
        want = np.asarray(want.toarray() if hasattr(want, "toarray") else want)
        assert got.shape == want.shape, method
        if method == "predict" and want.dtype.kind not in "f":
            certain = sure(source, rows)
            np.testing.assert_array_equal(got[certain], want[certain], err_msg=method)
        elif method != "predict_log_proba":  # the logarithm of what is compared already
            np.testing.assert_allclose(got, want.astype(float), TOLERANCE, TOLERANCE, err_msg=method)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES == 300,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    print_blob=True,
)
@given(pipelines())
def test_random_pipelines(drawn: Drawn) -> None:
    try:
        source = quietly(drawn.pipeline().fit, drawn.frame(ROWS), drawn.target())
    except (ValueError, TypeError, np.linalg.LinAlgError):
        assume(False)
    try:
        net = quietly(windtunnel.compile, source)
    except UnsupportedEstimator as error:
        assert any(word in str(error) for word in ("set ", "fit", "leave", "use ", "give ", "Register")), error
        return
    for kind, rows in spoiled(drawn.frame(40, offset=1), drawn.seed).items():
        try:
            compare(source, net, rows)
        except BaseException as error:
            error.add_note(f"rows: {kind}")
            raise
