"""Targets, weights and loaders that ``fit`` rejects; nothing learned is lost."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from case import NUMBERS, quick
from lightgbm import LGBMRegressor
from linear_case import FRAME, QUICK, READS, Y, linear, says
from sklearn.base import clone
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer, StandardScaler

import windtunnel
from windtunnel.errors import BadInput, InvalidOption

TARGETS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "one class": (
        lambda y: np.full(len(y), "no"),
        "every training target is 'no'; a classifier is fine-tuned on rows of at least two of its classes 'no', 'yes': "
        "give rows of another one",
    ),
    "too short": (lambda y: y[:-1], "y has 299 values for 300 rows; give one per row, in the same order"),
    "one value": (lambda y: "yes", "y='yes' is one value; give one per row, 300 in all"),
    "missing": (
        lambda y: pd.Series(["yes", None, *y[2:]]),
        "1 of 300 targets are missing (NaN or None); drop these rows.",
    ),
    "pandas' NA": (
        lambda y: pd.array(["yes", pd.NA, *y[2:]], dtype="string"),
        "1 of 300 targets are missing (NaN or None); drop these rows.",
    ),
    "NaN": (lambda y: np.full(len(y), np.nan), "300 of 300 targets are missing (NaN or None); drop these rows."),
    "unknown labels": (
        lambda y: ["maybe", 1, *y[2:]],
        "labels '1', 'maybe' are not among the classes that the pipeline was fitted on: 'no', 'yes'. Map them, or "
        "refit the pipeline with them.",
    ),
    "numbers for labels": (
        lambda y: (y == "yes").astype(int),
        "labels 0, 1 are not among the classes that the pipeline was fitted on: 'no', 'yes'. Map them, or refit the "
        "pipeline with them.",
    ),
    "dicts": (lambda y: [{}] * len(y), "targets that are dict; give one label per row"),
    "two columns": (
        lambda y: np.stack([y, y], axis=1),
        "targets of shape (300, 2); fine-tuning takes one label per row. Several targets are tuned one at a time, each "
        "by a translation of its own model (such as multi_output.estimators_[0]).",
    ),
}


def assert_unchanged(net: windtunnel.Translation, before: windtunnel.Translation, rows: Any) -> None:
    """Same weights, same scores, same rejections, nothing of a run left behind."""
    assert torch.equal(net.scores(rows), before.scores(rows))
    assert net.encoder == before.encoder and not net.training and net.history is before.history
    assert all(
        one.requires_grad == two.requires_grad for one, two in zip(net.parameters(), before.parameters(), strict=True)
    )
    assert all(one.grad is None for one in net.parameters())


@pytest.mark.parametrize("name", TARGETS)
def test_targets(net: windtunnel.Translation, rows: pd.DataFrame, name: str) -> None:
    bad, text = TARGETS[name]
    before, unseen = copy.deepcopy(net), rows.assign(city=["Atlantis", *rows["city"][1:]])
    with pytest.raises(BadInput) as error:
        net.fit((unseen, bad(Y["label"])), **QUICK)
    says(error, text)
    assert_unchanged(net, before, rows)
    with pytest.raises(BadInput, match="'Atlantis'"):
        net.predict(unseen)


VALUES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "NaN": (
        lambda y: np.where(np.arange(len(y)) < 2, np.nan, y),
        "2 of 300 targets are NaN, infinite or beyond float32; drop these rows or impute them.",
    ),
    "infinity": (
        lambda y: np.where(np.arange(len(y)) < 1, np.inf, y),
        "1 of 300 targets are NaN, infinite or beyond float32; drop these rows or impute them.",
    ),
    "beyond float32": (
        lambda y: np.where(np.arange(len(y)) < 1, 1e39, y),
        "1 of 300 targets are NaN, infinite or beyond float32; drop these rows or impute them.",
    ),
    "None": (
        lambda y: [None, *y[1:]],
        "1 of 300 targets are NaN, infinite or beyond float32; drop these rows or impute them.",
    ),
    "text": (lambda y: ["high", *y[1:]], "targets of type str; a regressor is fine-tuned on numbers: convert them."),
    "digits": (lambda y: y.astype(str), "targets of type str; a regressor is fine-tuned on numbers: convert them."),
    "dates": (
        lambda y: pd.date_range("2026-01-01", periods=len(y)),
        "targets of type datetime; a regressor is fine-tuned on numbers: convert them.",
    ),
    "two columns": (
        lambda y: np.stack([y, y], axis=1),
        "targets of shape (300, 2); fine-tuning takes one value per row. Several targets are tuned one at a time, each "
        "by a translation of its own model (such as multi_output.estimators_[0]).",
    ),
    "ragged": (
        lambda y: [[1.0], [1.0, 2.0]] * 150,
        "targets that are no array (...); give one per row.",
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_targets_of_a_regressor(name: str) -> None:
    bad, text = VALUES[name]
    X = FRAME[list(NUMBERS)]
    net = windtunnel.translate(quick(LGBMRegressor).fit(X, Y["value"]), calibrate=X)
    before = copy.deepcopy(net)
    with pytest.raises(BadInput) as error:
        net.fit((X, bad(Y["value"])), **QUICK)
    says(error, text)
    assert_unchanged(net, before, X)


def test_one_target_for_a_model_of_two() -> None:
    X = FRAME[["age", "visits"]]
    net = windtunnel.translate(LinearRegression().fit(X, Y["pair"]))
    before = copy.deepcopy(net)
    with pytest.raises(BadInput) as error:
        net.fit((X, Y["value"]), residual=False, **QUICK)
    says(
        error,
        "targets of shape (...) for scores of shape (30, 2); give one value for each output of each row",
    )
    assert_unchanged(net, before, X)


def test_a_transformer_has_no_target() -> None:
    X = FRAME[list(NUMBERS)]
    net = windtunnel.translate(StandardScaler().fit(X))
    with pytest.raises(BadInput) as error:
        net.fit((X, Y["value"]), **QUICK)
    says(error, "this pipeline ends in a transformer, so there is no target to fit; add a final predictor.")


def broken(rows: pd.DataFrame) -> Iterator[Any]:
    yield rows, Y["label"]
    raise RuntimeError("the disk is gone")


ACCEPTED = (
    "fit takes an iterable of (rows, target) or (rows, target, weight), where rows are a DataFrame, an Arrow table, an "
    "array, a dict of columns or an encoded Batch; all rows at once are a tuple (X, y) or (X, y, weight)"
)
FITS: dict[str, tuple[Callable[[pd.DataFrame], Any], dict[str, Any], str]] = {
    "a loader that yields nothing": (
        lambda X: iter(()),
        {},
        f"the loader yielded nothing; {ACCEPTED}: give at least one batch",
    ),
    "an empty list": (lambda X: [], {}, f"the loader yielded nothing; {ACCEPTED}: give at least one batch"),
    "no rows": (lambda X: (X[:0], []), {}, "train has no rows; give at least one"),
    "rows alone": (lambda X: X, {}, "train is a DataFrame; give (X, y) or (X, y, weight), or a loader of such batches"),
    "batches without targets": (lambda X: [X], {}, f"the loader yielded a DataFrame; {ACCEPTED}"),
    "weights below 0": (
        lambda X: (X, Y["label"], -np.ones(len(X))),
        {},
        "300 of 300 weights are negative, NaN or infinite; give one finite number from 0 per row",
    ),
    "weights of 0": (
        lambda X: (X, Y["label"], np.zeros(len(X))),
        {},
        "all 300 weights are 0; give at least one row a weight above 0",
    ),
    "weights too short": (
        lambda X: (X, Y["label"], np.ones(3)),
        {},
        "weight has 3 values for 300 rows; give one per row, in the same order",
    ),
    "weights beyond float32": (
        lambda X: (X, Y["label"], np.full(len(X), 1e39)),
        {},
        "the sum of the weights is beyond float32; divide them by their mean",
    ),
    "a loss without a gradient": (
        lambda X: (X, Y["label"]),
        {"loss": lambda scores, target, weight: torch.tensor(0.5)},
        "the loss returned a tensor without a gradient; compute it from the scores, in torch alone",
    ),
    "rows of wrong names": (
        lambda X: (X.rename(columns={"age": "aeg"}), Y["label"]),
        {},
        f"columns missing: 'age' (given: 'aeg'). Given: 'aeg', 'income', 'city'. {READS}",
    ),
    "an option that does not exist": (
        lambda X: (X, Y["label"]),
        {"learning_rates": 0.1},
        "learning_rates=0.1 is not an option: did you mean learning_rate?",
    ),
    "weights beside the rows": (
        lambda X: (X, Y["label"]),
        {"sample_weight": np.ones(len(FRAME))},
        "weights come with their rows: fit((X, y, weight), valid), or a loader of such batches",
    ),
    "an option out of range": (
        lambda X: (X, Y["label"]),
        {"epochs": 0, "dropout": 1.0},
        "recipe: epochs=0 must be a whole number from 1, or None; dropout=1.0 must be in [0, 1)",
    ),
    "a recipe that does not exist": (
        lambda X: (X, Y["label"]),
        {"recipe": "papers"},
        "recipe='papers' is not known; did you mean paper?",
    ),
}


@pytest.mark.parametrize("name", FITS)
def test_what_fit_is_given(net: windtunnel.Translation, rows: pd.DataFrame, name: str) -> None:
    train, options, text = FITS[name]
    before = copy.deepcopy(net)
    with pytest.raises((BadInput, InvalidOption)) as error:
        net.fit(train(rows), **QUICK | options)
    says(error, text)
    assert_unchanged(net, before, rows)


def test_missing_numbers_in_training_rows(net: windtunnel.Translation, rows: pd.DataFrame) -> None:
    before = copy.deepcopy(net)
    with pytest.raises(BadInput, match="^300 of 300 rows have no finite score: .* in 'age' reach a step that does not"):
        net.fit((rows.assign(age=np.nan), Y["label"]), (rows, Y["label"]), **QUICK)
    assert_unchanged(net, before, rows)
    bad = rows.assign(age=[np.inf, *rows["age"][1:]])
    for train, valid in (
        ([(rows, Y["label"]), (bad, Y["label"])], (rows, Y["label"])),
        ((rows, Y["label"]), (bad, Y["label"])),
    ):
        with pytest.raises(BadInput, match="finite"):
            net.fit(train, valid, **QUICK)
        assert torch.equal(net.scores(rows), before.scores(rows)) and net.history is None


@pytest.mark.parametrize("options", [{}, {"residual": False}], ids=["residual", "joint"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("columns", [["age"], ["age", "income"]], ids=["trees", "scaler, trees"])
def test_rows_that_predict_rejects_are_not_used_for_training_or_validation(
    columns: list[str], value: float, options: dict[str, Any], rows: pd.DataFrame
) -> None:
    # Soft trees give a finite score for any number.
    good = rows[columns]
    trees = GradientBoostingClassifier(n_estimators=3, random_state=0)
    source = trees if len(columns) == 1 else make_pipeline(StandardScaler(), trees)
    net = windtunnel.translate(source.fit(good, Y["label"]), calibrate=good)
    bad = good.assign(age=[value, *good["age"][1:]])
    with pytest.raises(BadInput, match="1 of 300 rows have no finite score: .* in 'age'"):
        net.predict(bad)
    for train, valid in ((bad, good), (good, bad)):
        with pytest.raises(BadInput, match="1 of 300 rows have no finite score: .* in 'age'"):
            net.fit((train, Y["label"]), (valid, Y["label"]), **QUICK | options)


@pytest.mark.parametrize("options", [{}, {"residual": False}], ids=["residual", "joint"])
@pytest.mark.parametrize(
    ("source", "value"),
    [
        (make_pipeline(PowerTransformer(method="box-cox"), LogisticRegression()), -3.0),
        (RandomForestClassifier(3, random_state=0), 1e39),
    ],
    ids=["box-cox", "beyond float32"],
)
def test_finite_numbers_that_predict_rejects(
    source: Any, value: float, options: dict[str, Any], rows: pd.DataFrame
) -> None:
    good = rows[["age", "income"]].abs() + 1
    net = windtunnel.translate(clone(source).fit(good, Y["label"]), calibrate=good)
    bad = good.assign(age=[value, *good["age"][1:]])
    for train, valid in ((bad, good), (good, bad)):
        with pytest.raises(BadInput, match="1 of 300 rows have no finite score"):
            net.fit((train, Y["label"]), (valid, Y["label"]), **QUICK | options)


def test_a_loader_that_breaks(net: windtunnel.Translation, rows: pd.DataFrame) -> None:
    net.fit((rows, Y["label"]), (rows, Y["label"]), **QUICK)
    before = copy.deepcopy(net)
    before.records = net.records
    with pytest.raises(RuntimeError, match="the disk is gone"):
        net.fit(broken(rows.assign(city=["Atlantis", *rows["city"][1:]])), (rows, Y["label"]), **QUICK)
    assert_unchanged(net, before, rows)


def test_compiled_cannot_be_trained(rows: pd.DataFrame) -> None:
    with pytest.raises(BadInput, match="^nothing in this translation is trainable: .*; translate with level="):
        windtunnel.compile(linear()).fit((rows, Y["label"]), residual=False, **QUICK)


def test_loader_checks_what_it_is_given(net: windtunnel.Translation, rows: pd.DataFrame) -> None:
    with pytest.raises(BadInput, match="^X has no rows; give at least one$"):
        windtunnel.loader(net, rows[:0])
    with pytest.raises(InvalidOption, match="^batch_size=0 must be a whole number from 1$"):
        windtunnel.loader(net, rows, Y["label"], batch_size=0)
    with pytest.raises(BadInput, match="^y has 2 values for 300 rows"):
        windtunnel.loader(net, rows, Y["label"][:2])
