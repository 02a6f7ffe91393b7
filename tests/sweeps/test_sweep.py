"""Sweeps: the default trial, spaces, pruning, Pareto fronts, kills and processes, plots, the command."""

from __future__ import annotations

import io
import json
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sweep_case import QUICK, SPACE, TRAIN, VALID, logistic, rows, trees
from sweep_runs import OPTIONS, auroc, sweep, url

import windtunnel
from windtunnel.errors import InvalidOption
from windtunnel.sweeps.cost import inference_cost
from windtunnel.sweeps.rows import SharedRows


def test_the_result_is_the_best_trial_and_the_first_is_the_default() -> None:
    pipeline = logistic()
    result = sweep(pipeline)
    alone = windtunnel.translate(pipeline, calibrate=TRAIN[0]).fit(TRAIN, VALID, recipe=QUICK, progress=False)
    assert result.history["trial"].tolist() == [0, 1, 2]
    assert result.history["default"].tolist() == [True, False, False]
    assert result.default_value == alone.history.best
    assert result.best_value == result.history["auroc"].max() >= result.default_value
    assert auroc(result.net) == pytest.approx(result.best_value, abs=1e-6)
    assert result.best_options.keys() == SPACE.keys()
    again = windtunnel.translate(pipeline, calibrate=TRAIN[0])
    again.fit(TRAIN, VALID, recipe=QUICK, **result.best_options, progress=False)
    assert again.history.best == result.best_value
    assert "3 trials (3 complete) of study 'sweep'" in str(result)
    assert result.history.equals(sweep(pipeline).history.assign(seconds=result.history["seconds"]))


def test_the_default_trial_may_lie_outside_of_the_space() -> None:
    result = sweep(logistic(), 2, space={"learning_rate": {"low": 1e-9, "high": 1e-8}, "epochs": 1})
    first = result.history.iloc[0]
    assert first["learning_rate"] == QUICK.learning_rate
    assert first["epochs"] == first["trained_epochs"] == 1
    assert result.history["learning_rate"].iloc[1] < 1e-7


def test_first_trials_of_the_default_space_keep_start_and_temperature(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**OPTIONS, "recipe": replace(QUICK, epochs=1)}
    monkeypatch.setattr("windtunnel.sweeps.objective.CAUTIOUS_TRIALS", 4)
    table = windtunnel.sweep(trees(), TRAIN, VALID, trials=4, **options).history
    assert set(table["start"]) == {"warm"} and set(table["temperature"]) == {"auto"}
    assert table["learning_rate"].nunique() == 4


def test_without_optuna_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windtunnel.errors.find_spec", lambda name: None)
    with pytest.raises(InvalidOption, match=r"pip install '\.\[tune\]'"):
        sweep(None)


# Shared rows


@pytest.mark.parametrize("fitted", [logistic, trees])
def test_the_encoding_does_not_depend_on_swept_options(fitted: Callable[[], Any]) -> None:
    pipeline = fitted()
    shared = SharedRows(windtunnel.translate(pipeline, calibrate=TRAIN[0]), TRAIN, VALID)
    for level, start, temperature in (("L1", "warm", "auto"), ("L4", "cold", 0.1), ("L2", "warm", 1.0)):
        net = windtunnel.translate(pipeline, level=level, start=start, temperature=temperature, calibrate=TRAIN[0])
        train, valid = shared.batches(net, windtunnel.Recipe(batch_size=30, seed=5))
        assert train.rows.numbers is shared.train.rows.numbers and valid.rows.ids is shared.valid.rows.ids
        assert (train.batch_size, train.seed) == (30, 5)
        torch.testing.assert_close(net.encode(VALID[0]).numbers, valid.rows.numbers, rtol=0, atol=0)


def test_host_steps_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"word{number % 7} {'good' if number % 3 else 'bad'}" for number in range(90)]
    labels = [int(number % 3 > 0) for number in range(90)]
    pipeline = make_pipeline(CountVectorizer(), LogisticRegression()).fit(texts, labels)
    calls: list[int] = []
    original = windtunnel.Translation.encode

    def encode(net: Any, rows: Any, **options: Any) -> Any:
        calls.append(len(rows))
        return original(net, rows, **options)

    monkeypatch.setattr(windtunnel.Translation, "encode", encode)
    parts = (texts[:60], labels[:60]), (texts[60:], labels[60:])
    result = windtunnel.sweep(pipeline, *parts, space=SPACE, trials=3, calibrate=texts[:5], **OPTIONS)
    assert Counter(calls) == {60: 1, 30: 1, 5: 4}
    assert result.net.predict(texts[60:]).tolist() == labels[60:]


def test_every_trial_learns_categories_that_the_source_rejects() -> None:
    X, y = rows(120, 0)
    X = X[["a"]].assign(c=["u", "v", "w"] * 40)
    fitted = X["c"] != "w"
    encode = ColumnTransformer([("c", OneHotEncoder(), ["c"])], remainder="passthrough")
    pipeline = make_pipeline(encode, LogisticRegression()).fit(X[fitted], y[fitted])
    result = windtunnel.sweep(pipeline, (X, y), (X, y), space=SPACE, trials=2, calibrate=X[fitted], **OPTIONS)
    assert len(result.net.predict(X)) == 120


@pytest.mark.parametrize("significant", [True, False])
def test_the_first_trial_equals_a_default_fit(significant: bool) -> None:
    """Without a column that explains the residuals, neither trains anything."""
    # The second validation rows have the opposite targets of the training rows.
    valid = VALID if significant else (TRAIN[0], np.where(TRAIN[1] == "yes", "no", "yes"))
    pipeline = logistic()
    alone = windtunnel.translate(pipeline, calibrate=TRAIN[0]).fit(TRAIN, valid, epochs=2, progress=False)
    options = {**OPTIONS, "recipe": None, "space": {"learning_rate": [1e-3, 2e-3, 5e-3], "epochs": 2}, "trials": 1}
    result = windtunnel.sweep(pipeline, TRAIN, valid, calibrate=TRAIN[0], **options)
    metrics = [epoch.metric for epoch in alone.history.epochs]
    assert [*result.study.trials[0].intermediate_values.values()] == (metrics if significant else [])
    assert result.best_value == alone.history.best
    assert result.best_options == {"learning_rate": 2e-3, "epochs": 2}


def test_the_first_trial_without_a_residual_model_is_joint_training() -> None:
    space = {"residual": False, "learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}, "epochs": 1}
    options = {**OPTIONS, "recipe": None, "space": space, "trials": 1}
    result = windtunnel.sweep(logistic(), TRAIN, VALID, calibrate=TRAIN[0], **options)
    joint = windtunnel.Recipe.resolve("joint", {}).learning_rate
    assert result.study.trials[0].params == {"learning_rate": joint}
    assert result.best_options["learning_rate"] == joint != windtunnel.Recipe().learning_rate


# Pruning


def test_a_trial_is_pruned_after_an_epoch_but_never_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[int] = []

    class Always(optuna.pruners.BasePruner):
        def prune(self, study: Any, trial: Any) -> bool:
            checked.append(trial.number)
            return trial.number != 2

    result = sweep(logistic(), 4, pruner=Always())
    assert result.history["state"].tolist() == ["complete", "pruned", "complete", "pruned"]
    assert result.history["trained_epochs"].tolist() == [2, 1, 2, 1]
    assert set(checked) == {1, 2, 3}
    steps = [list(trial.intermediate_values) for trial in result.study.trials]
    assert steps == [[0, 1, 2], [0, 1], [0, 1, 2], [0, 1]]
    best = result.study.trials[result.front[0]]
    assert max(best.intermediate_values.values()) == result.best_value


def test_the_median_of_the_other_trials_prunes() -> None:
    space = {"learning_rate": [0.05, 1e-12]}
    result = sweep(
        logistic(), 9, space=space, recipe=windtunnel.Recipe(residual=False, epochs=4, learning_rate=0.05, ema=None)
    )
    pruned = result.history[result.history["state"] == "pruned"]
    assert len(pruned) > 0
    assert set(pruned["learning_rate"]) == {1e-12} and set(pruned["trained_epochs"]) <= {2, 3}


# Two objectives


def test_two_objectives_give_the_pareto_front(tmp_path: Path) -> None:
    options: dict[str, Any] = {"space": {"level": ["L1", "L3"], "learning_rate": [1e-3, 0.13]}, "folder": tmp_path}
    recipe = windtunnel.Recipe(residual=False, epochs=6, tree_rate=1.0, leaf_rate=1.0, ema=0.9)
    result = sweep(trees(), 6, objectives=("metric", "inference_cost"), recipe=recipe, **options)
    table = result.history
    assert len(result.front) >= 2  # rounding decides whether L1 gains
    assert set(table["state"]) == {"complete"}
    points = list(zip(table["auroc"], table["inference_cost"], strict=True))
    dominated = [any(b >= a and d <= c and (b, d) != (a, c) for b, d in points) for a, c in points]
    equal = [points.index(point) < place for place, point in enumerate(points)]
    front = {number for number, out in enumerate(dominated) if not out and not equal[number]}
    assert set(result.front) == front
    assert {int(path.stem) for path in (tmp_path / "trials").iterdir()} == front
    # Many rows have the same score but for rounding, which orders them; the other trials are further away.
    assert result.best_value == max(table["auroc"]) == pytest.approx(auroc(result.net), abs=5e-3)
    assert "inference_cost" in str(result)
    assert {path.name for path in result.plots(tmp_path / "plots")} >= {"front.html", "front.png"}


def test_the_cost_is_a_count_of_operations() -> None:
    """A linear model on n columns has 2 n operations in its product, and writes n numbers in each further step."""
    batch = windtunnel.translate(logistic()).encode(VALID[0])
    costs = [inference_cost(windtunnel.translate(logistic()), batch) for _ in range(2)]
    assert costs[0] == costs[1] >= 2 * 3
    small, large = (
        inference_cost(windtunnel.translate(trees(), level=level).soften(), batch) for level in ("L1", "L4")
    )
    assert small != large


def test_a_metric_may_be_minimised() -> None:
    result = sweep(logistic(), 3, metric="log_loss")
    assert not result.greater_is_better
    assert result.best_value == result.history["log_loss"].min()
    probability = result.net.predict_proba(VALID[0])
    assert log_loss(VALID[1], probability, labels=result.net.classes_) == pytest.approx(result.best_value, rel=1e-5)


# Plots and messages


def test_plots_are_not_empty_and_leave_matplotlib_unchanged(tmp_path: Path) -> None:
    from matplotlib import image, pyplot as plt, rcParams

    figure = plt.figure()
    before, figures = rcParams.copy(), plt.get_fignums()
    result = sweep(trees(), 5, space={"level": ["L1", "L4"], "start": ["warm", "cold"]}, folder=tmp_path)
    assert result.history["auroc"].nunique() > 1
    files = result.plots(tmp_path / "plots")
    names = ["history", "importances", "parallel", "level"]
    assert {path.name for path in files} == {f"{name}.{kind}" for name in names for kind in ("html", "png")}
    for path in files:
        if path.suffix == ".png":
            picture = image.imread(path)
            assert picture.shape[0] > 200 and picture.std() > 0.02
        else:
            assert "plotly.min.js" in path.read_text(encoding="utf-8")
    assert (tmp_path / "plots" / "plotly.min.js").stat().st_size > 1e6
    assert plt.get_fignums() == figures and dict(rcParams) == dict(before)
    plt.close(figure)


def test_one_trial_has_a_plot_and_the_dashboard_shows_it(tmp_path: Path) -> None:
    from optuna_dashboard import wsgi

    files = sweep(logistic(), 1, storage=url(tmp_path)).plots(tmp_path)
    assert [path.name for path in files] == ["history.html", "history.png"]
    statuses: list[str] = []
    environ = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": "/api/studies",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": io.StringIO(),
    }
    body = b"".join(wsgi(url(tmp_path))(environ, lambda status, headers, error=None: statuses.append(status)))
    assert statuses == ["200 OK"]
    assert [study["study_name"] for study in json.loads(body)["study_summaries"]] == ["sweep"]


@pytest.mark.parametrize("progress", [True, False])
def test_optuna_logs_a_line_per_trial(progress: bool, capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger, level = logging.getLogger("optuna"), optuna.logging.get_verbosity()
    logger.addHandler(handler)
    result = sweep(logistic(), 2, progress=progress)
    logger.removeHandler(handler)
    assert capsys.readouterr().out == ""
    finished = [line for line in lines if line.startswith("Trial ")]
    assert len(finished) == (2 if progress else 0)
    assert not progress or f"Best is trial 0 with value: {result.default_value}" in finished[0]
    assert optuna.logging.get_verbosity() == level == logging.INFO
    assert result.metric == QUICK.metric_for(windtunnel.translate(logistic())).name == "auroc"


def test_a_recipe_that_trains_both_is_rejected():
    with pytest.raises(InvalidOption, match=r"not both; leave joint=True out"):
        windtunnel.sweep(logistic(), TRAIN, VALID, recipe=windtunnel.Recipe(joint=True), trials=1, progress=False)
