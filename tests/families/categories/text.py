"""Vectorizers of texts and dicts, and the weighting of counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from case import WORDS, Case, columns, logistic, one_hot
from sklearn.base import clone
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.naive_bayes import ComplementNB
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, StandardScaler

TERMS = ["red", "slow", "red hot", "missing"]


def words_of(texts: pd.Series) -> list[list[str]]:
    """Tokens that were found elsewhere."""
    return [text.split() for text in texts]


def pairs_of(texts: pd.Series) -> list[list[tuple[str, float]]]:
    return [[(word, float(len(word)) - 4) for word in text.split()] for text in texts]


def dicts_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Text, numbers, and several texts under one name."""
    names = ("city", "visits", "review")
    rows = [dict(zip(names, row, strict=True)) for row in frame[list(names)].itertuples(index=False)]
    return [{**row, "review": row["review"].split()[:3]} for row in rows]


def shout(text: str) -> str:
    return text.upper().replace("!", "")


def text(vectorizer: Any, *after: Any, target: str = "label", **options: Any) -> Any:
    """A case of a bare pipeline over texts, under the name that the options give it."""
    given = vectorizer.get_params()
    odd = {name: value for name, value in given.items() if value != type(vectorizer)().get_params()[name]}
    shown = ", ".join(f"{name}={getattr(value, '__name__', value)!r}" for name, value in odd.items())
    return Case(
        f"{type(vectorizer).__name__}({shown}){' and more' if after else ''}",
        lambda: clone(make_pipeline(vectorizer, *(after or (logistic(),)))),
        "review",
        target,
        hosts=(type(vectorizer).__name__.lower(),),
        **options,
    )


FLOAT32: dict[str, Any] = {"tolerance": 1e-6, "why": "the source computes in float32"}

CASES = [
    text(TfidfVectorizer()),
    text(TfidfVectorizer(norm="l1", smooth_idf=False), target="grade"),
    text(TfidfVectorizer(norm=None, use_idf=False), Ridge(), target="value"),
    text(TfidfVectorizer(sublinear_tf=True, binary=False, min_df=2, max_df=0.8)),
    text(TfidfVectorizer(binary=True, ngram_range=(1, 2), stop_words="english", max_features=30)),
    text(TfidfVectorizer(vocabulary=TERMS, ngram_range=(1, 2))),
    text(TfidfVectorizer(dtype=np.float32), **FLOAT32),
    text(TfidfVectorizer(), TruncatedSVD(3, random_state=0), StandardScaler(), logistic()),
    text(CountVectorizer(), ComplementNB(), target="grade"),
    text(CountVectorizer(binary=True, lowercase=False, token_pattern=r"\S+")),
    text(CountVectorizer(analyzer="char", ngram_range=(2, 3), strip_accents="unicode")),
    text(CountVectorizer(analyzer="char_wb", ngram_range=(3, 3), strip_accents="ascii")),
    text(CountVectorizer(tokenizer=str.split, token_pattern=None, preprocessor=shout)),
    text(CountVectorizer(analyzer=shout)),
    text(CountVectorizer(stop_words=["red", "fast"]), TfidfTransformer(), MaxAbsScaler(), logistic()),
    text(HashingVectorizer(n_features=32)),
    text(HashingVectorizer(n_features=20, alternate_sign=False, norm="l1", binary=True, ngram_range=(1, 2))),
    text(HashingVectorizer(n_features=64, norm=None), TfidfTransformer(norm="l1"), logistic()),
    Case("tfidf alone", lambda: TfidfVectorizer(sublinear_tf=True), "review", hosts=("TfidfVectorizer",)),
    Case(
        "counts alone", lambda: CountVectorizer(vocabulary=WORDS, lowercase=False), "review",
        hosts=("CountVectorizer",),
    ),
    Case("weights of counts alone", TfidfTransformer, ("visits", "zip")),
    Case(
        "weights of logarithms alone", lambda: TfidfTransformer(sublinear_tf=True, norm="l1"), ("visits", "zip"),
        array=True,
    ),
    Case(
        "texts beside numbers and categories",
        lambda: make_pipeline(
            columns(
                (TfidfVectorizer(), "review"),
                (StandardScaler(), ["income", "visits"]),
                (one_hot(), ["zip"]),
                (make_pipeline(CountVectorizer(analyzer="char"), TfidfTransformer()), "review"),
                transformer_weights={"part0": 0.5},
            ),
            logistic(),
        ),
        ("income", "review", "zip", "visits"),
        hosts=("columntransformer.part0", "columntransformer.part3.countvectorizer"),
    ),
    Case(
        "texts in an array",
        lambda: make_pipeline(columns((CountVectorizer(), 1), (StandardScaler(), [0]), sparse_threshold=0), logistic()),
        ("income", "review"),
        array=True,
        hosts=("columntransformer.part0",),
    ),
    Case(
        "a union of words and letters",
        lambda: make_pipeline(
            make_union(TfidfVectorizer(), HashingVectorizer(n_features=16, analyzer="char")), logistic()
        ),
        "review",
        hosts=("featureunion.tfidfvectorizer", "featureunion.hashingvectorizer"),
    ),
    Case(
        "dicts, read",
        lambda: make_pipeline(FunctionTransformer(dicts_of), DictVectorizer(), logistic()),
        ("city", "visits", "review"),
        unseen=True,
        hosts=("dictvectorizer",),
    ),
    Case(
        "dicts, read densely",
        lambda: make_pipeline(
            FunctionTransformer(dicts_of), DictVectorizer(sparse=False), StandardScaler(), logistic()
        ),
        ("city", "visits", "review"),
        hosts=("dictvectorizer",),
    ),
    Case(
        "words, hashed",
        lambda: make_pipeline(FunctionTransformer(words_of), FeatureHasher(24, input_type="string"), logistic()),
        "review",
        hosts=("featurehasher",),
    ),
    Case(
        "pairs, hashed",
        lambda: make_pipeline(FunctionTransformer(pairs_of), FeatureHasher(24, input_type="pair"), Ridge()),
        "review",
        "value",
        hosts=("featurehasher",),
    ),
]  # fmt: skip
