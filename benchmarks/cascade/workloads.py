"""Pipelines like the six of Willump (Kraft et al., MLSys 2020, table 1), fitted on generated rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from windtunnel import Lookup

SYLLABLES = ("ka", "ro", "mi", "ten", "lor", "bas", "qui", "ven", "dra", "pol", "shi", "xo", "zer", "ny", "ul", "fen")
ROWS = 12_000
TREES = {"n_estimators": 100, "num_leaves": 31, "verbosity": -1, "n_jobs": 1}


class RemoteTable:
    """A table behind a network: many keys at once, each request after a wait.

    Attributes
    ----------
    seconds : float
        The wait per request; 0 for a local table.
    requests, keys : int
        How many there were.
    """

    def __init__(self, values: Mapping[Any, list[float]]) -> None:
        self.values, self.seconds, self.requests, self.keys = values, 0.0, 0, 0

    def mget(self, keys: list[Any]) -> list[list[float] | None]:
        """The values of some keys."""
        self.requests, self.keys = self.requests + 1, self.keys + len(keys)
        if self.seconds:
            time.sleep(self.seconds)
        return [self.values.get(key) for key in keys]


@dataclass(frozen=True)
class Workload:
    """A fitted pipeline, and rows for it: training, validation and test.

    Attributes
    ----------
    tables : dict
        Group -> the table that it looks up in.
    """

    name: str
    pipeline: Pipeline
    train: tuple[pd.DataFrame, Any]
    valid: tuple[pd.DataFrame, Any]
    test: tuple[pd.DataFrame, Any]
    tables: Mapping[str, RemoteTable] = field(default_factory=dict)

    @property
    def classifies(self) -> bool:
        """Whether the pipeline predicts classes."""
        return hasattr(self.pipeline, "predict_proba")


def fitted(
    name: str,
    parts: list[Any],
    model: Any,
    rows: pd.DataFrame,
    target: Any,
    tables: Mapping[str, RemoteTable] = {},
    more: int = 0,
) -> Workload:
    """Fit on the first half of the rows; a quarter each validates and tests, ``more`` rows test too."""
    half, last = (len(rows) - more) // 2, 3 * (len(rows) - more) // 4
    train, valid, test = (
        (rows.iloc[start:stop].reset_index(drop=True), np.asarray(target)[start:stop])
        for start, stop in ((0, half), (half, last), (last, len(rows)))
    )
    pipeline = Pipeline([("features", ColumnTransformer(parts)), ("model", model)]).fit(*train)
    return Workload(name, pipeline, train, valid, test, tables)


def vocabulary(draw: np.random.Generator, size: int) -> Any:
    """Made-up words."""
    return np.array(["".join(draw.choice(SYLLABLES, draw.integers(2, 5))) for _ in range(size)])


def zipf(draw: np.random.Generator, values: int, size: Any) -> Any:
    """Positions, early ones often."""
    shares = 1 / np.arange(1, values + 1)
    return draw.choice(values, size, p=shares / shares.sum())


def misspelt(draw: np.random.Generator, word: str) -> str:
    """A word with a letter too many."""
    at = draw.integers(1, len(word))
    return word[:at] + str(draw.choice([*"abcdefghijklmnopqrstuvwxyz"])) + word[at:]


def texts(draw: np.random.Generator, rows: int, words: int, lengths: tuple[int, int]) -> tuple[list[str], Any]:
    """Texts of words that carry opinions, by word and by syllable, one in twelve misspelt; and their sums."""
    known = vocabulary(draw, words)
    syllables = dict(zip(SYLLABLES, draw.normal(size=len(SYLLABLES)) * 2, strict=True))
    inside = [sum(effect for part, effect in syllables.items() if part in word) for word in known]
    strength = draw.normal(size=words) * (draw.random(words) < 0.15) * 4 + np.array(inside) - np.mean(inside)
    documents, scores = [], np.empty(rows)
    for row in range(rows):
        drawn = zipf(draw, words, draw.integers(*lengths))
        scores[row] = strength[drawn].sum()
        wrong = draw.random(len(drawn)) < 1 / 12
        documents.append(
            " ".join(misspelt(draw, word) if bad else word for word, bad in zip(known[drawn], wrong, strict=True))
        )
    return documents, scores


def characters(shortest: int, longest: int) -> TfidfVectorizer:
    """Weighted counts of pieces of words."""
    return TfidfVectorizer(analyzer="char", ngram_range=(shortest, longest), min_df=5)


def product(seed: int = 0, more: int = 0) -> Workload:
    """Product titles: are they clear? Words and characters, a linear model."""
    draw = np.random.default_rng(seed)
    titles, scores = texts(draw, ROWS + more, 4_000, (5, 14))
    parts = [("words", TfidfVectorizer(min_df=2), "title"), ("characters", characters(2, 5), "title")]
    target = np.where(scores + draw.logistic(size=len(scores)) > 0, "clear", "unclear")
    model = LogisticRegression(C=20, max_iter=300)
    return fitted("product", parts, model, pd.DataFrame({"title": titles}), target, more=more)


def toxic(seed: int = 1, more: int = 0) -> Workload:
    """Comments: are they toxic? A few swear words decide, some of them misspelt; a linear model."""
    draw = np.random.default_rng(seed)
    comments, _ = texts(draw, ROWS + more, 4_000, (8, 25))
    swear = vocabulary(draw, 15)
    target = draw.random(len(comments)) < 0.2
    for row in np.flatnonzero(target):
        word = str(draw.choice(swear))
        comments[row] += f" {misspelt(draw, word) if draw.random() < 0.4 else word}"
    parts = [("words", TfidfVectorizer(min_df=2), "comment"), ("characters", characters(2, 5), "comment")]
    model = LogisticRegression(C=20, max_iter=300)
    return fitted("toxic", parts, model, pd.DataFrame({"comment": comments}), target.astype(int), more=more)


def looked_up(columns: list[str], tables: Mapping[str, RemoteTable]) -> list[Any]:
    """A look-up of each column in its table."""
    return [(column, Lookup(tables[column]), [column]) for column in columns]


def table(draw: np.random.Generator, size: int, width: int) -> RemoteTable:
    """A table of random numbers."""
    return RemoteTable({key: row.tolist() for key, row in enumerate(draw.normal(size=(size, width)))})


def column(store: RemoteTable, keys: Any, position: int) -> Any:
    """One number of each looked-up row."""
    return np.array([store.values[key][position] for key in keys.tolist()])


def music(seed: int = 2, more: int = 0) -> Workload:
    """Does a user like a song? Features of user, song and artist are looked up; boosted trees."""
    draw = np.random.default_rng(seed)
    tables = {"user": table(draw, 500, 4), "song": table(draw, 800, 4), "artist": table(draw, 200, 3)}
    rows = pd.DataFrame({name: zipf(draw, len(store.values), ROWS + more) for name, store in tables.items()})
    rows["hour"] = draw.integers(24, size=len(rows))
    liked = column(tables["user"], rows.user, 0) * column(tables["song"], rows.song, 0)
    liked += 3 * column(tables["song"], rows.song, 1) + column(tables["artist"], rows.artist, 0) / 3
    parts = [*looked_up(["user", "song", "artist"], tables), ("hour", "passthrough", ["hour"])]
    target = (liked + draw.logistic(size=len(rows)) / 2 > 0).astype(int)
    return fitted("music", parts, LGBMClassifier(**TREES), rows, target, tables, more=more)


def tracking(seed: int = 3, more: int = 0) -> Workload:
    """Does a click lead to a download? Statistics of app, channel, device and address are looked up; boosted trees."""
    draw = np.random.default_rng(seed)
    sizes = {"app": 100, "channel": 150, "device": 1_000, "address": 6_000}
    tables = {name: table(draw, size, 3) for name, size in sizes.items()}
    rows = pd.DataFrame({name: zipf(draw, size, ROWS + more) for name, size in sizes.items()})
    rows["hour"] = draw.integers(24, size=len(rows))
    score = 3 * column(tables["app"], rows.app, 0) + 1.5 * column(tables["channel"], rows.channel, 0)
    score += column(tables["address"], rows.address, 0) / 2 + column(tables["device"], rows.device, 0) / 2 - 2
    parts = [*looked_up([*sizes], tables), ("hour", "passthrough", ["hour"])]
    target = (score + draw.logistic(size=len(rows)) / 2 > 0).astype(int)
    return fitted("tracking", parts, LGBMClassifier(**TREES), rows, target, tables, more=more)


def credit(seed: int = 4) -> Workload:
    """The risk of a loan. Earlier loans and instalments of each client are looked up; boosted trees, regression."""
    draw = np.random.default_rng(seed)
    tables = {"bureau": table(draw, 12_000, 6), "instalments": table(draw, 12_000, 6), "cards": table(draw, 12_000, 6)}
    client = draw.permutation(12_000)
    rows = pd.DataFrame(dict.fromkeys(tables, client) | {f"a{at}": draw.normal(size=12_000) for at in range(6)})
    risk = 2 * rows.a0 + column(tables["bureau"], rows.bureau, 0) + column(tables["cards"], rows.cards, 0) / 3
    risk += column(tables["instalments"], rows.instalments, 0) * rows.a1 / 2 + draw.normal(size=len(rows)) / 3
    parts = [*looked_up([*tables], tables), ("application", "passthrough", [f"a{at}" for at in range(6)])]
    return fitted("credit", parts, LGBMRegressor(**TREES), rows, 1 / (1 + np.exp(-risk)), tables)


def price(seed: int = 5) -> Workload:
    """The price of an offer, by name, description, brand and condition; a linear model, regression."""
    draw = np.random.default_rng(seed)
    names, first = texts(draw, 8_000, 1_200, (2, 7))
    descriptions, second = texts(draw, 8_000, 4_000, (10, 30))
    brands = draw.normal(size=200)
    rows = pd.DataFrame({"name": names, "description": descriptions, "brand": zipf(draw, 200, 8_000)})
    rows["condition"] = draw.integers(1, 6, size=len(rows)).astype(float)
    target = first / 2 + second / 8 + 3 * brands[rows.brand] + rows.condition / 2 + draw.normal(size=len(rows)) / 4
    parts = [
        ("name", TfidfVectorizer(min_df=2), "name"),
        ("description", TfidfVectorizer(ngram_range=(1, 2), min_df=3), "description"),
        ("brand", OneHotEncoder(handle_unknown="ignore"), ["brand"]),
        ("condition", StandardScaler(), ["condition"]),
    ]
    return fitted("price", parts, Ridge(), rows, target)


WORKLOADS: dict[str, Callable[[], Workload]] = {
    workload.__name__: workload for workload in (product, toxic, music, tracking, credit, price)
}
