"""Translations reject batches of other translations, unless these encode rows alike."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from torch.utils.data import DataLoader

import windtunnel
from windtunnel.errors import BadInput

RANDOM = np.random.default_rng(0)
X = pd.DataFrame({"city": RANDOM.choice(list("abcdef"), 300), "x": RANDOM.normal(size=300)})
Y = np.where(X["city"].isin(["a", "b"]) ^ (X["x"] > 0), "yes", "no")
TEXTS = ["good film", "bad film", "good plot", "bad plot"] * 30
QUICK: dict[str, Any] = {"epochs": 1, "residual": False, "progress": False, "accelerator": "cpu"}


def pipeline(rows: pd.DataFrame = X, y: Any = Y, final: Any = None) -> Any:
    columns = (OneHotEncoder(handle_unknown="ignore"), ["city"]), ("passthrough", [*rows.columns.drop("city")])
    return make_pipeline(make_column_transformer(*columns), final or LogisticRegression()).fit(rows, y)


def of_texts(texts: list[str], **options: Any) -> Any:
    return make_pipeline(CountVectorizer(**options), LogisticRegression()).fit(texts, [1, 0] * (len(texts) // 2))


def test_translations_that_encode_alike_accept_batches(tmp_path: Path) -> None:
    source = pipeline()
    first = windtunnel.translate(source)
    train, valid = windtunnel.loader(first, X, Y), windtunnel.loader(first, X, Y, shuffle=False)
    first.save(tmp_path / "net.windtunnel")
    copies = pickle.loads(pickle.dumps(source)), pipeline(y=np.roll(Y, 1))
    others = [windtunnel.load(tmp_path / "net.windtunnel"), *map(windtunnel.translate, (source, *copies))]
    for net in (first, *others):
        net.fit(train, valid, **QUICK)


KEPT = (X["city"] != "a").to_numpy()
OTHERS: dict[str, tuple[Callable[[], Any], str]] = {
    "categories": (
        lambda: windtunnel.translate(pipeline(X[KEPT], Y[KEPT])),
        "have 5 and 6 categories in column 'city'",
    ),
    "columns": (
        lambda: windtunnel.translate(pipeline(X.rename(columns={"x": "z"}))),
        "its columns of numbers are 'z', and those of this one 'x'",
    ),
    "more columns": (
        lambda: windtunnel.translate(pipeline(X.assign(z=1.0))),
        "its columns of numbers are 'x', 'z', and those of this",
    ),
    "type": (
        lambda: windtunnel.compile(pipeline(), dtype="float32"),
        "its numbers are float32, and those of this one float64",
    ),
    "labels": (
        lambda: windtunnel.translate(pipeline(y=np.where(Y == "yes", "no", "maybe"))),
        "its labels are 'maybe', 'no', and those of this one 'no', 'yes'",
    ),
    "task": (
        lambda: windtunnel.translate(pipeline(y=X["x"], final=Ridge())),
        "its labels are none, and those of this one 'no', 'yes'",
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_translations_that_encode_otherwise_reject_batches(kind: str) -> None:
    make, message = OTHERS[kind]
    other = make()
    y = X["x"] if kind == "task" else other.classes_[(Y == "yes").astype(int)]
    net, batches = windtunnel.translate(pipeline()), windtunnel.loader(other, X.assign(z=1.0), y)
    with pytest.raises(BadInput, match=f"the train loader was encoded by another translation: .*{message}"):
        net.fit(batches, (X, Y), **QUICK)
    with pytest.raises(BadInput, match="the valid loader was encoded by another"):
        net.fit((X, Y), batches, **QUICK)


@pytest.mark.parametrize("workers", [False, True])
def test_streams_of_another_translation_are_rejected(tmp_path: Path, workers: bool) -> None:
    X.assign(y=Y).to_parquet(tmp_path / "rows.parquet")
    net, other = windtunnel.translate(pipeline()), OTHERS["categories"][0]()

    def loader(made_for: Any) -> Any:
        stream = windtunnel.stream(made_for, tmp_path / "rows.parquet", target="y", batch_size=100)
        return DataLoader(stream, batch_size=None) if workers else stream

    with pytest.raises(BadInput, match="the train loader was encoded by another translation"):
        net.fit(loader(other), (X, Y), **QUICK)
    windtunnel.translate(pipeline()).fit(loader(net), (X, Y), **QUICK)


def test_term_counts_are_compared(tmp_path: Path) -> None:
    y = [1, 0] * 60
    net, same = windtunnel.translate(of_texts(TEXTS)), windtunnel.translate(of_texts(TEXTS))
    net.save(tmp_path / "net.windtunnel")
    batches = windtunnel.loader(net, TEXTS, y)
    for one in (same, windtunnel.load(tmp_path / "net.windtunnel")):
        one.fit(batches, (TEXTS, y), **QUICK)
    for different in (of_texts([text.replace("good", "fine") for text in TEXTS]), of_texts(TEXTS, binary=True)):
        with pytest.raises(BadInput, match="step 'countvectorizer', kept on the host, is not the same fitted step"):
            windtunnel.translate(different).fit(batches, (TEXTS, y), **QUICK)


def test_host_steps_are_compared_by_their_estimator() -> None:
    def source() -> Any:
        doubled = make_pipeline(FunctionTransformer(lambda rows: rows * 2), LogisticRegression())
        return doubled.fit(X[["x"]], Y)

    one = source()
    net = windtunnel.translate(one, calibrate=X[["x"]])
    batches = windtunnel.loader(net, X[["x"]], Y)
    windtunnel.translate(one, calibrate=X[["x"]]).fit(batches, (X[["x"]], Y), **QUICK)
    with pytest.raises(BadInput, match="kept on the host, is not the same fitted step"):
        windtunnel.translate(source(), calibrate=X[["x"]]).fit(batches, (X[["x"]], Y), **QUICK)
