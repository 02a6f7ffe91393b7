"""Where versions of scikit-learn predict different values; ``make test-oldest`` compares with the older sources."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.multiclass import OneVsRestClassifier
from sklearn.tree import DecisionTreeClassifier

import windtunnel
from windtunnel.translators.composites import multiclass
from windtunnel.translators.scikit_learn_version import scikit_learn_before

X = np.random.default_rng(0).normal(size=(90, 2))
LABELS = np.array(["a", "b", "c"])[np.arange(90) % 3]


def test_versions_are_compared_as_numbers() -> None:
    assert scikit_learn_before("1.100")
    assert not scikit_learn_before("1.7")


@pytest.mark.parametrize("backend", ["torch", "torchscript", "native"])
def test_the_last_of_equal_scores_is_the_label_before_1_9(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source = OneVsRestClassifier(DecisionTreeClassifier(max_leaf_nodes=2, random_state=0)).fit(X, LABELS)
    source.estimators_[2] = source.estimators_[1]  # so that scores are equal
    scores = np.stack([member.predict_proba(X)[:, 1] for member in source.estimators_], axis=1)
    monkeypatch.setattr(multiclass, "scikit_learn_before", lambda version: True)
    net = windtunnel.compile(source, backend=backend)
    last = 2 - scores[:, ::-1].argmax(axis=1)
    assert (last != scores.argmax(axis=1)).any()
    np.testing.assert_array_equal(net.predict(X), source.classes_[last])
