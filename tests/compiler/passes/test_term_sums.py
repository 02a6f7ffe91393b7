"""Weighted counts of terms that are summed in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest, VarianceThreshold
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from wide_table import FRAME, LABEL, TEXTS, modules

import windtunnel
from windtunnel.errors import BadInput
from windtunnel.modules.tables.tfidf import TermSums, Tfidf

REVIEWS = [" ".join(f"word{letter}" for letter in row) for row in FRAME[TEXTS].itertuples(index=False)]
SUMMED: dict[str, Callable[[], Any]] = {
    "idf": TfidfVectorizer,
    "l1": lambda: TfidfVectorizer(norm="l1"),
    "hashed": lambda: HashingVectorizer(n_features=32),
    "counted, weighted": lambda: make_pipeline(CountVectorizer(), TfidfTransformer()),
    "selected": lambda: make_pipeline(TfidfVectorizer(), SelectKBest(k=3)),
    "twice": lambda: make_pipeline(TfidfVectorizer(), make_union(VarianceThreshold(), SelectKBest(k=3))),
}


@pytest.mark.parametrize("name", SUMMED)
def test_terms_are_weighted_and_summed_in_one_pass(name: str) -> None:
    source = make_pipeline(SUMMED[name](), LogisticRegression()).fit(REVIEWS, LABEL)
    net = windtunnel.compile(source)
    sums = modules(net)[-1]
    assert isinstance(sums, TermSums) and not any(isinstance(module, Tfidf) for module in modules(net))
    rows = [*REVIEWS, "", "unheard of", "worda " * 300]
    np.testing.assert_allclose(net.predict_proba(rows), source.predict_proba(rows), rtol=1e-9, atol=1e-9)


def test_terms_that_something_else_reads_keep_their_weights() -> None:
    source = make_pipeline(TfidfVectorizer(), make_union(PCA(2), SelectKBest(k=3)), LogisticRegression())
    # PCA takes its columns dense or not at all.
    source[0].set_params(norm="l1")
    net = windtunnel.compile(source.fit(REVIEWS, LABEL))
    assert any(isinstance(module, Tfidf) for module in modules(net))
    np.testing.assert_allclose(net.predict_proba(REVIEWS), source.predict_proba(REVIEWS), rtol=1e-9, atol=1e-9)


def test_values_of_dicts_are_rejected_where_their_weighting_rejects_them() -> None:
    rows = [{"a": float(at % 7), "b": float(at % 3) + 1} for at in range(len(LABEL))]
    source = make_pipeline(DictVectorizer(), TfidfTransformer(), LogisticRegression()).fit(rows, LABEL)
    net = windtunnel.compile(source)
    assert isinstance(modules(net)[-1], TermSums)
    np.testing.assert_allclose(net.predict_proba(rows), source.predict_proba(rows), rtol=1e-9, atol=1e-9)
    for odd in (np.nan, np.inf):
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            source.predict([{"a": odd, "b": 1.0}])
        with pytest.raises(BadInput, match="no finite score"):
            net.predict([{"a": odd, "b": 1.0}])


@pytest.mark.parametrize("norm", ["", "max"])
def test_sums_of_terms_want_a_norm(norm: str) -> None:
    with pytest.raises(ValueError, match="norm must be one of 'l1', 'l2'"):
        TermSums(torch.ones(2), torch.ones(1, 2), torch.zeros(1), norm)
