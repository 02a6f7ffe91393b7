"""Encoders of labels, which are fitted on a sequence of them and no table."""

from __future__ import annotations

from typing import Any

import pandas as pd
from case import Case
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, LabelBinarizer, LabelEncoder, MultiLabelBinarizer


def labels(id: str, make: Any, column: str, **options: Any) -> Case:
    """A case of an encoder that is fitted without anything beside the labels."""
    return Case(id, make, column, fit=lambda encoder, X, y: encoder.fit(X), **options)


def words_of(texts: pd.Series) -> list[set[str]]:
    return [set(text.split()) for text in texts]


def over_words(binarizer: MultiLabelBinarizer, texts: Any, _: Any) -> Pipeline:
    """A fitted pipeline whose last step takes no target."""
    binarizer.fit(words_of(texts))
    binarizer.transform(words_of(texts))  # once, so that the index that it keeps is in place
    return make_pipeline(FunctionTransformer(words_of), binarizer)


CASES = [
    labels("label encoder of texts", LabelEncoder, "city", missing=True),
    labels("label encoder of objects", LabelEncoder, "device", missing=True),
    labels("label encoder of pandas categories", LabelEncoder, "plan"),
    labels("label encoder of integers", LabelEncoder, "zip"),
    labels("label binarizer of texts", LabelBinarizer, "city", unseen=True),
    labels("label binarizer of numbers", lambda: LabelBinarizer(neg_label=-1, pos_label=3), "zip", unseen=True),
    labels("label binarizer, sparse", lambda: LabelBinarizer(sparse_output=True), "plan", unseen=True),
    Case("sets of labels", MultiLabelBinarizer, "review", fit=over_words, hosts=("multilabelbinarizer",)),
    Case(
        "sets of labels, sparse",
        lambda: MultiLabelBinarizer(sparse_output=True),
        "review",
        fit=over_words,
        hosts=("multilabelbinarizer",),
    ),
]
