"""The terms of texts, counted on the host: the tokenizers of scikit-learn that a few plain options describe."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer

TEXT_OPTIONS = (
    "analyzer", "lowercase", "strip_accents", "ngram_range", "token_pattern", "encoding", "decode_error", "binary",
)  # fmt: skip


@dataclass(frozen=True)
class TermCounter:
    """Counts terms of texts, from options that a file can hold: no tokenizer of one's own among them.

    Attributes
    ----------
    analyzer, lowercase, strip_accents, ngram_range, token_pattern, encoding, decode_error, binary
        As scikit-learn's vectorizers take them.
    stop_words : sequence of str or None
        Words that are left out.
    vocabulary : sequence of str or None
        The term of each column; None where terms are hashed.
    n_features : int
        The number of columns that terms are hashed into.
    alternate_sign : bool
        Whether half of the hashed terms count negative.
    """

    analyzer: str
    lowercase: bool
    strip_accents: str | None
    ngram_range: Sequence[int]
    token_pattern: str | None
    encoding: str
    decode_error: str
    binary: bool
    stop_words: Sequence[str] | None
    vocabulary: Sequence[str] | None
    n_features: int = 0
    alternate_sign: bool = False

    @classmethod
    def of(cls, fitted: Any) -> TermCounter | None:
        """The counter of a fitted vectorizer; None where it has code of its own, or reads files."""
        options = {name: getattr(fitted, name) for name in TEXT_OPTIONS}
        own = (fitted.tokenizer, fitted.preprocessor, fitted.analyzer if callable(fitted.analyzer) else None)
        columns = getattr(fitted, "vocabulary_", None)
        vocabulary = None if columns is None else sorted(columns, key=columns.__getitem__)
        plain = fitted.input == "content" and not callable(fitted.strip_accents) and own == (None, None, None)
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
        return self._vectorizer.transform(texts)

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
            # It was said when the pipeline was fitted.
            warnings.filterwarnings("ignore", "Your stop_words may be inconsistent", UserWarning)
            vectorizer.build_analyzer()
        return vectorizer
