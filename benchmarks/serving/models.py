"""The models of the benchmark, with rows as requests have them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import windtunnel

ROWS = 6_000
TITLES = ("red", "blue", "steel", "oak", "garden", "phone", "cable", "lamp", "table", "soft", "cotton", "mini", "pro")


@dataclass(frozen=True)
class Model:
    """A saved model, and rows for it."""

    name: str
    path: Path
    rows: list[dict[str, Any]]


def trees(folder: Path) -> Model:
    """100 trees of 64 leaves over 8 texts and 4 numbers, in the native engine."""
    frame, target = _table()
    texts = [name for name in frame if name.startswith("c")]
    encode = make_column_transformer((OneHotEncoder(), texts), remainder="passthrough")
    pipeline = make_pipeline(encode, LGBMClassifier(n_estimators=100, num_leaves=64, verbose=-1, n_jobs=1))
    return _saved("trees", folder, windtunnel.compile(pipeline.fit(frame, target)), frame)


def torch_trees(folder: Path) -> Model:
    """The same kind of model with 500 trees, in torch: a call costs much and a row little."""
    frame, target = _table()
    texts = [name for name in frame if name.startswith("c")]
    encode = make_column_transformer((OneHotEncoder(), texts), remainder="passthrough")
    pipeline = make_pipeline(encode, LGBMClassifier(n_estimators=500, num_leaves=64, verbose=-1, n_jobs=1))
    net = windtunnel.compile(pipeline.fit(frame, target), backend="torch")
    return _saved("torch_trees", folder, net, frame)


def cascade(folder: Path) -> Model:
    """Numbers suffice for half of the rows; the others need character n-grams of a text of 120 words."""
    return _cascade("cascade", folder, words=120, weight=1.0)


def early(folder: Path) -> Model:
    """Numbers suffice for most rows; the others need character n-grams of a text of 240 words."""
    return _cascade("early", folder, words=240, weight=8.0)


def _cascade(name: str, folder: Path, *, words: int, weight: float) -> Model:
    """A cascade of numbers of some weight in front of texts of some words."""
    generator = np.random.default_rng(0)
    texts = generator.choice(TITLES, (ROWS, words))
    frame = pd.DataFrame(generator.normal(size=(ROWS, 4)), columns=[f"x{at}" for at in range(4)])
    frame["text"] = [" ".join(row) for row in texts]
    counts = (texts == "pro").sum(1) - (texts == "mini").sum(1)
    target = weight * (3 * frame.x0 + 2 * frame.x1) + counts / 2 > 0
    columns = make_column_transformer(
        (StandardScaler(), ["x0", "x1", "x2", "x3"]),
        (TfidfVectorizer(analyzer="char", ngram_range=(2, 4)), "text"),
    )
    pipeline = make_pipeline(columns, LogisticRegression(max_iter=1000))
    train, valid = slice(0, ROWS // 2), slice(ROWS // 2, ROWS)
    pipeline.fit(frame[train], target[train])
    made = windtunnel.cascade(
        pipeline, (frame[train], target[train]), (frame[valid], target[valid]), accuracy_loss=0.005
    )
    print(made.report(), flush=True)
    made.full.save(folder / "full.windtunnel")
    return _saved(name, folder, made, frame[valid])


def _table() -> tuple[pd.DataFrame, Any]:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({f"c{at}": generator.choice([f"v{value}" for value in range(12)], ROWS) for at in range(8)})
    for at in range(4):
        frame[f"x{at}"] = generator.normal(size=ROWS)
    score = frame.x0 + (frame.c0 == "v1") + (frame.c1 == "v3") * frame.x1 + generator.normal(size=ROWS)
    return frame, score > 0.2


def _saved(name: str, folder: Path, model: Any, frame: pd.DataFrame) -> Model:
    model.save(folder / f"{name}.windtunnel")
    return Model(name, folder / f"{name}.windtunnel", frame.head(500).to_dict("records"))


MODELS = {"trees": trees, "torch_trees": torch_trees, "cascade": cascade, "early": early}
