"""Weighted counts of terms that are summed in one pass."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest, VarianceThreshold
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import StandardScaler
from wide_table import FRAME, LABEL, TEXTS, modules

import windtunnel
from windtunnel.errors import BadInput
from windtunnel.modules.linear.linear import Linear
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


COLUMNS = pd.DataFrame(
    {
        "title": REVIEWS,
        "body": [f"{text} {'again ' * (at % 3)}" for at, text in enumerate(reversed(REVIEWS))],
        "size": np.arange(len(REVIEWS)) % 7.0,
    }
)
LETTERS = {"analyzer": "char", "ngram_range": (1, 6)}  # enough terms to be summed by themselves
SEVERAL: dict[str, Callable[[], Any]] = {
    "two": lambda: make_column_transformer((TfidfVectorizer(**LETTERS), "title"), (CountVectorizer(**LETTERS), "body")),
    "numbers too": lambda: make_column_transformer(
        (TfidfVectorizer(**LETTERS), "title"),
        (HashingVectorizer(n_features=128), "body"),
        (StandardScaler(), ["size"]),
    ),
    "components": lambda: make_column_transformer(
        (make_pipeline(TfidfVectorizer(**LETTERS), TruncatedSVD(3)), "title"), ("passthrough", ["size"])
    ),
    "the same terms twice": lambda: make_column_transformer(
        (make_union(CountVectorizer(**LETTERS), TfidfVectorizer(**LETTERS)), "title"), ("passthrough", ["size"])
    ),
}


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_counts_of_several_columns_are_summed_apart(name: str, backend: str) -> None:
    source = make_pipeline(SEVERAL[name](), LogisticRegression(max_iter=5000)).fit(COLUMNS, LABEL)
    net = windtunnel.compile(source, backend=backend)
    summed = net.facts().summed_counts
    assert summed is not None and len(summed.encoder.numbers) < 8 < len(net.encoder.numbers)
    for rows in (COLUMNS, COLUMNS[:1], COLUMNS.to_dict("list")):
        expected = source.predict_proba(pd.DataFrame(rows))
        np.testing.assert_allclose(net.predict_proba(rows), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(net.predict_proba(net.encode(COLUMNS)), source.predict_proba(COLUMNS), 1e-9, 1e-9)
    with pytest.raises(BadInput, match="no finite score|reject"):
        net.predict(COLUMNS.assign(size=np.inf, title=None))


def test_sums_of_counts_follow_weights_that_change() -> None:
    net = windtunnel.compile(make_pipeline(SEVERAL["two"](), LogisticRegression(max_iter=5000)).fit(COLUMNS, LABEL))
    before, copy = net.decision_function(COLUMNS), deepcopy(net)
    with torch.no_grad():
        for module in modules(copy):
            if isinstance(module, Linear | TermSums):
                module.bias += 1
    moved = copy.decision_function(COLUMNS) - before
    np.testing.assert_allclose(moved, moved[0])
    assert moved[0] >= 1
    np.testing.assert_array_equal(net.decision_function(COLUMNS), before)


def test_terms_that_are_read_twice_are_not_summed_apart() -> None:
    twice = make_pipeline(CountVectorizer(**LETTERS), make_union("passthrough", "passthrough"))
    source = make_pipeline(
        make_column_transformer((twice, "title"), (TfidfVectorizer(), "body")), LogisticRegression(max_iter=5000)
    )
    net = windtunnel.compile(source.fit(COLUMNS, LABEL))
    np.testing.assert_allclose(net.predict_proba(COLUMNS), source.predict_proba(COLUMNS), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("read_again", ["body", "title"])
def test_counts_that_are_outputs_stay_beside_sums(read_again: str) -> None:
    components = make_pipeline(CountVectorizer(**LETTERS), TruncatedSVD(2))
    source = make_column_transformer((components, "title"), (CountVectorizer(**LETTERS), read_again)).fit(COLUMNS)
    net = windtunnel.compile(source)
    assert net.facts().summed_counts is not None
    for rows in (COLUMNS, COLUMNS[:1]):
        np.testing.assert_allclose(net.transform(rows), source.transform(rows), rtol=1e-9, atol=1e-9)
