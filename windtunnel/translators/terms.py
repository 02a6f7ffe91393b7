"""Counts the terms of texts on the host, as the scikit-learn tokenizers that plain options describe."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer

TEXT_OPTIONS = (
    "analyzer", "lowercase", "strip_accents", "ngram_range", "token_pattern", "encoding", "decode_error", "binary",
)  # fmt: skip


@dataclass(frozen=True)
class TermCounter:
    """Counts terms of texts, from options that a file can store: no custom tokenizer."""

    # analyzer, lowercase, strip_accents, ngram_range, token_pattern, encoding, decode_error, binary: as scikit-learn's
    # vectorizers take them
    analyzer: str
    lowercase: bool
    strip_accents: str | None
    ngram_range: Sequence[int]
    token_pattern: str | None
    encoding: str
    decode_error: str
    binary: bool
    stop_words: Sequence[str] | None  # words that are not counted
    vocabulary: Sequence[str] | None  # the term of each column; None if terms are hashed
    n_features: int = 0  # the number of columns of hashed terms
    alternate_sign: bool = False  # whether half of the hashed terms have a negative count

    @classmethod
    def from_vectorizer(cls, fitted: Any) -> TermCounter | None:
        """The counter of a fitted vectorizer; None if it has custom code, reads files, or counts in few bits."""
        options = {name: getattr(fitted, name) for name in TEXT_OPTIONS}
        custom = (fitted.tokenizer, fitted.preprocessor, fitted.analyzer if callable(fitted.analyzer) else None)
        columns = getattr(fitted, "vocabulary_", None)
        vocabulary = None if columns is None else sorted(columns, key=columns.__getitem__)
        plain = fitted.input == "content" and not callable(fitted.strip_accents) and custom == (None, None, None)
        plain &= np.dtype(fitted.dtype).kind != "b" and np.dtype(fitted.dtype).itemsize >= 4
        if not plain or not all(isinstance(term, str) for term in vocabulary or ()):
            return None
        words = fitted.get_stop_words()
        return cls(
            **options,
            stop_words=None if words is None else sorted(words),
            vocabulary=vocabulary,
            n_features=0 if vocabulary is not None else fitted.n_features,
            alternate_sign=vocabulary is None and fitted.alternate_sign,
        )

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.n_features if self.vocabulary is None else len(self.vocabulary)

    def __call__(self, texts: Any) -> Any:
        """Counts of the terms in each text, sparse ``[B, width]``."""
        if self._single_words and not isinstance(texts, str):
            rows = texts.tolist() if isinstance(texts, pd.Series) else list(texts)
            if {*map(type, rows)} == {str}:
                return self._word_counts(rows)
        return self._vectorizer.transform(texts)

    @property
    def _single_words(self) -> bool:
        """Whether a term is a plain word of the text, which needs no n-grams or characters."""
        plain = self.analyzer == "word" and tuple(self.ngram_range) == (1, 1) and not self.strip_accents
        return plain and bool(self.vocabulary)

    def _word_counts(self, texts: list[str]) -> sparse.csr_array:
        """The counts of scikit-learn's loop over words and texts, in half of its time."""
        words = [*map(self._words, map(str.lower, texts) if self.lowercase else texts)]
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        columns = np.fromiter(map(self._columns.get, chain.from_iterable(words), repeat(-1)), np.int64, lengths.sum())
        counted = columns >= 0
        # The number of counted words before each text.
        starts = np.append(0, counted.cumsum())[np.append(0, lengths.cumsum())]
        counts = sparse.csr_array((np.ones(starts[-1], np.int64), columns[counted], starts), (len(texts), self.width))
        counts.sum_duplicates()
        if self.binary:
            counts.data.fill(1)
        return counts

    @cached_property
    def _words(self) -> Callable[[str], list[str]]:
        words: Callable[[str], list[str]] = self._vectorizer.build_tokenizer()
        return words

    @cached_property
    def _columns(self) -> dict[str, int]:
        """The column of each counted term."""
        stop_words = frozenset(self.stop_words or ())
        return {term: column for column, term in enumerate(self.vocabulary or ()) if term not in stop_words}

    @cached_property
    def _vectorizer(self) -> Any:
        options: dict[str, Any] = {name: getattr(self, name) for name in TEXT_OPTIONS}
        options["ngram_range"] = tuple(self.ngram_range)
        options["stop_words"] = None if self.stop_words is None else list(self.stop_words)
        if self.vocabulary is None:
            hashed = {"n_features": self.n_features, "alternate_sign": self.alternate_sign, "norm": None}
            vectorizer = HashingVectorizer(**options, **hashed)
        else:
            vectorizer = CountVectorizer(**options, vocabulary=list(self.vocabulary))
        with warnings.catch_warnings():
            # scikit-learn has warned when the pipeline was fitted.
            warnings.filterwarnings("ignore", "Your stop_words may be inconsistent", UserWarning)
            vectorizer.build_analyzer()
        return vectorizer
