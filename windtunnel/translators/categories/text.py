"""Vectorizers of texts and dicts: terms are found and counted on the host, what becomes of the counts is translated."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.feature_extraction import DictVectorizer, FeatureHasher, text

from windtunnel.modules.base import Module
from windtunnel.modules.tables.tfidf import SublinearTfidf, Tfidf
from windtunnel.translators.conversions import TokenCounts
from windtunnel.translators.registry import translates
from windtunnel.translators.terms import TermCounter

ON_THE_HOST = "tokens are found and counted on the host"


@translates(text.TfidfTransformer, trainable="idf")
def tfidf_transformer(fitted: text.TfidfTransformer) -> Tfidf | SublinearTfidf:
    """tf(x) idf_ / |tf(x) idf_|. Reads idf_ (where use_idf), sublinear_tf and norm."""
    return _tfidf(getattr(fitted, "idf_", None), fitted.sublinear_tf, fitted.norm)


@translates(text.TfidfVectorizer, trainable="idf", notes=ON_THE_HOST)
def tfidf_vectorizer(fitted: text.TfidfVectorizer) -> TokenCounts:
    """Counts of terms, weighted by its own TfidfTransformer."""
    counts = partial(text.CountVectorizer.transform, fitted)
    return _counted(fitted, counts, tfidf_transformer(fitted._tfidf))


@translates(text.CountVectorizer, notes=ON_THE_HOST, differentiable=False)
def count_vectorizer(fitted: text.CountVectorizer) -> TokenCounts:
    """Counts of terms. Reads vocabulary_."""
    return _counted(fitted, fitted.transform, None)


@translates(text.HashingVectorizer, notes=ON_THE_HOST, differentiable=False)
def hashing_vectorizer(fitted: text.HashingVectorizer) -> TokenCounts:
    """Counts of hashed terms, over the norm of each row. Reads n_features and norm."""
    unscaled = copy.copy(fitted)
    unscaled.norm = None
    then = None if fitted.norm is None else _tfidf(None, False, fitted.norm)
    return TokenCounts(unscaled.transform, fitted.n_features, then, TermCounter.from_vectorizer(fitted))


@translates(FeatureHasher, notes=ON_THE_HOST, differentiable=False)
def feature_hasher(fitted: FeatureHasher) -> TokenCounts:
    """Sums of hashed features. Reads n_features."""
    return TokenCounts(fitted.transform, fitted.n_features, finite=False)


@translates(DictVectorizer, notes="dicts are read on the host", differentiable=False)
def dict_vectorizer(fitted: DictVectorizer) -> TokenCounts:
    """The values of dicts, one column per name, or per name and text. Reads feature_names_."""
    return TokenCounts(fitted.transform, len(fitted.feature_names_), finite=False)


def _counted(fitted: text.CountVectorizer, counts: Callable[[Any], Any], then: Module | None) -> TokenCounts:
    """The counts by ``TermCounter`` if the source counts in 64-bit numbers, else by the source's own ``counts``."""
    counter = TermCounter.from_vectorizer(fitted)
    wide = np.dtype(fitted.dtype) in (np.dtype(np.int64), np.dtype(np.float64))
    return TokenCounts(counter if counter is not None and wide else counts, len(fitted.vocabulary_), then, counter)


def _tfidf(idf: Any, sublinear: bool, norm: str | None) -> Tfidf | SublinearTfidf:
    weights = np.zeros(0) if idf is None else np.array(idf, dtype=np.float64)
    return (SublinearTfidf if sublinear else Tfidf)(torch.from_numpy(weights), norm or "")
