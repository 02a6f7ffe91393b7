"""Counts that files may hold: each module says how large they may be."""

import inspect
from typing import get_type_hints

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import windtunnel
from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules import import_all
from windtunnel.modules.base import MODULES, Module, bounded
from windtunnel.modules.kernels.support_vectors import PairVotes
from windtunnel.modules.tables.category_table import CategoryTable
from windtunnel.modules.trees import HardTrees
from windtunnel.modules.trees.ensemble import TreeEnsemble

import_all()
OURS = sorted(name for name, module in MODULES.items() if module.__module__.startswith("windtunnel."))


@pytest.mark.parametrize("name", OURS)
def test_every_count_has_bounds(name):
    module = MODULES[name]
    hints, fields = get_type_hints(module.__init__), getattr(module.__init__, "fields", {})
    unbounded = [fact for fact in module.FACTS if hints[fact] in (int, list[int]) and not fields[fact].bounds]
    assert not unbounded, f"declare {name}.{unbounded[0]} as bounded(least, most)"


def test_a_count_outside_of_its_bounds_is_rejected():
    class Repeated(Module):
        times: int = bounded(1, 5, default=2)

    assert Repeated().times == 2 and Repeated(5).times == 5
    assert inspect.signature(Repeated).parameters["times"].default == 2
    for times in (0, 6, 10**12):
        with pytest.raises(UnsupportedEstimator, match="times of Repeated"):
            Repeated(times)
    del MODULES["Repeated"]
    with pytest.raises(UnsupportedEstimator, match="classes of PairVotes"):
        PairVotes(10**6)


def test_sets_of_huge_categories_are_rejected_at_once():
    arrays = ([0, 1], [0, 2], [0], [0.5], [True], np.zeros(1, np.int8)), ([-1], [-2], [1.0, 2.0], [0], [0.0])
    parts = [np.array(values) for group in arrays for values in group]
    stump = TreeEnsemble(1, *parts, categories={0: np.array([10**10])})
    with pytest.raises(windtunnel.BadFile, match="sets of categories"):
        HardTrees.of(stump)


def test_a_pattern_of_words_needs_trust(tmp_path):
    texts = ["good day", "bad day", "good", "bad"] * 5
    pipeline = make_pipeline(CountVectorizer(token_pattern=r"(?u)[a-z]+"), LogisticRegression()).fit(texts, [1, 0] * 10)
    windtunnel.translate(pipeline, calibrate=texts).save(tmp_path / "net.windtunnel")
    with pytest.raises(windtunnel.BadFile, match="trusted=True"):
        windtunnel.load(tmp_path / "net.windtunnel")
    for options in ({"trusted": True}, {"host": pipeline}):
        loaded = windtunnel.load(tmp_path / "net.windtunnel", **options)
        np.testing.assert_allclose(loaded.predict_proba(texts), pipeline.predict_proba(texts), atol=1e-6)


def test_an_array_in_the_place_of_a_tensor_is_named() -> None:
    with pytest.raises(TypeError, match="field rows of CategoryTable is a ndarray; give a tensor"):
        CategoryTable(np.zeros((2, 3)), False)  # type: ignore[arg-type]  # an array on purpose
