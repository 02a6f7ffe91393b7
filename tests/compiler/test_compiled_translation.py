"""``compile`` of translations: the scores of the translation on each backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lightgbm import LGBMClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import windtunnel
from windtunnel.errors import InvalidOption

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(1500, 4)).round(1)
Y = (X[:, 0] + np.where(X[:, 1] * X[:, 2] > 0, 2.0, -2.0) + RANDOM.normal(size=1500) > 0).astype(int)


def translation(**options: Any) -> windtunnel.Translation:
    trees = LGBMClassifier(n_estimators=5, num_leaves=4, verbosity=-1)
    source = make_pipeline(StandardScaler(), trees).fit(X[:1000], Y[:1000])
    return windtunnel.translate(source, calibrate=X[:1000], **options)


@pytest.mark.parametrize("backend", ["torch", "torchscript", "exported"])
def test_scores_are_those_of_the_translation(backend: str, tmp_path: Path) -> None:
    tuned, soft = translation(), translation(level="L1")
    tuned.fit((X[:1000], Y[:1000]), (X[1000:], Y[1000:]), epochs=1, progress=False, accelerator="cpu")
    assert tuned.origins[-1].name == "residual"
    soft.soften()
    for net in (tuned, soft):
        scores = net.decision_function(X)
        fast = windtunnel.compile(net, backend=backend)
        np.testing.assert_allclose(fast.decision_function(X), scores, rtol=0, atol=1e-5)
        assert not any(parameter.requires_grad for parameter in fast.parameters())
        assert np.array_equal(net.decision_function(X), scores)
        fast.save(tmp_path / "fast.windtunnel")
        again = windtunnel.load(tmp_path / "fast.windtunnel").decision_function(X)
        np.testing.assert_allclose(again, scores, rtol=0, atol=1e-5)


def test_a_soft_translation_can_still_be_trained_after_it_was_compiled() -> None:
    net = translation(level="L1")
    net.soften()
    windtunnel.compile(net)
    assert any(parameter.requires_grad for parameter in net.parameters()) and net.exact_modules


def test_another_type_and_a_backend_that_is_fixed_are_rejected() -> None:
    net = translation()
    with pytest.raises(InvalidOption, match="computes in float64; leave dtype out"):
        windtunnel.compile(net, dtype="float32")
    fast = windtunnel.compile(net, backend="torchscript", dtype="float64")
    with pytest.raises(InvalidOption, match="a backend that is fixed"):
        windtunnel.compile(fast)


def test_a_compiled_residual_model_is_explained_and_refreshed() -> None:
    """Compiling drops columns that no tree reads, and checks their numbers in a step of its own."""
    net = translation()
    net.fit((X[:1000], Y[:1000]), (X[1000:], Y[1000:]), epochs=1, progress=False, accelerator="cpu")
    fast = windtunnel.compile(net)
    kinds = [[type(step.module).__name__ for step in each.program.steps] for each in (net, fast)]
    assert len(kinds[1]) > len(kinds[0]) and kinds[1][-2:] == kinds[0][-2:] == ["ResidualModel", "ResidualSum"]
    ours, theirs = (each.explain(X[:50], X[:200]) for each in (net, fast))
    np.testing.assert_allclose(theirs.base + theirs.values.sum(axis=1), fast.scores(X[:50]).numpy(), rtol=0, atol=1e-9)
    np.testing.assert_allclose(theirs.values, ours.values, rtol=0, atol=1e-9)
    fast.refresh((X[1000:], Y[1000:]))
    assert [type(step.module).__name__ for step in fast.program.steps] == kinds[1]
