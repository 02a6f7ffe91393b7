"""Sweeps: the default trial, spaces, pruning, Pareto fronts, kills and processes, plots, the command."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import torch
import yaml
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sweep_case import QUICK, RESIDUAL, SPACE, TRAIN, VALID, logistic, rows, trees
from typer.testing import CliRunner

import windtunnel
from windtunnel.cli import app
from windtunnel.clicklog import click_log
from windtunnel.errors import BadInput, InvalidOption
from windtunnel.sweeps import study as study_module
from windtunnel.sweeps.cost import inference_cost
from windtunnel.sweeps.objective import Objective
from windtunnel.sweeps.rows import SharedRows
from windtunnel.sweeps.space import DEFAULT, RECIPE_OPTIONS, TRANSLATE_OPTIONS, Space, default_space, parse_space
from windtunnel.trainers.loop.module import FineTuning

CASE = Path(__file__).parents[1] / "support" / "sweep_case.py"
OPTIONS: dict[str, Any] = {"recipe": QUICK, "progress": False, "accelerator": "cpu"}


def sweep(pipeline: Any, trials: int = 3, **options: Any) -> windtunnel.SweepResult:
    return windtunnel.sweep(pipeline, TRAIN, VALID, trials=trials, **{"space": SPACE, **OPTIONS, **options})


def auroc(net: Any) -> float:
    return roc_auc_score(VALID[1] == "yes", net.predict_proba(VALID[0])[:, 1])


def counted(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    return study.get_trials(states=(TrialState.COMPLETE, TrialState.PRUNED))


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
    assert first["epochs"] == 1
    assert result.history["learning_rate"].iloc[1] < 1e-7


def test_the_default_space_leaves_out_options_without_effect() -> None:
    def names(fitted: Any, recipe: str) -> set[str]:
        return set(default_space(windtunnel.translate(fitted).soften(), windtunnel.Recipe.named(recipe), 200).swept)

    assert names(logistic(), "default") == {
        "residual", "residual_rank", "learning_rate", "weight_decay", "batch_size", "ema"
    }  # fmt: skip
    assert names(logistic(), "joint") == {"learning_rate", "weight_decay", "batch_size", "ema"}
    assert names(trees(), "default") == {*DEFAULT, "batch_size"} - {"table_rate"}


def test_first_trials_of_the_default_space_keep_start_and_temperature(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**OPTIONS, "recipe": replace(QUICK, epochs=1)}
    monkeypatch.setattr("windtunnel.sweeps.objective.CAUTIOUS_TRIALS", 4)
    table = windtunnel.sweep(trees(), TRAIN, VALID, trials=4, **options).history
    assert set(table["start"]) == {"warm"} and set(table["temperature"]) == {"auto"}
    assert table["learning_rate"].nunique() == 4


@pytest.mark.parametrize("option", [*TRANSLATE_OPTIONS, *RECIPE_OPTIONS])
def test_every_option_can_be_fixed(option: str) -> None:
    defaults = {"level": "L4", "start": "warm", "temperature": "auto"}
    value = defaults[option] if option in defaults else getattr(windtunnel.Recipe(), option)
    assert parse_space({option: value}).fixed == {option: value}


def test_a_space_is_the_same_from_yaml_and_from_optuna() -> None:
    text = """
    learning_rate: {low: 0.00001, high: 0.01, log: true}
    level: [L1, L4]
    batch_size: {low: 256, high: 4096, step: 256}
    dropout: {low: 0.0, high: 0.5, step: 0.1}
    temperature: {low: 0.1, high: 1}
    weight_decay: [0.0]
    epochs: 5
    """
    distributions: dict[str, Any] = {
        "learning_rate": FloatDistribution(1e-5, 1e-2, log=True),
        "level": CategoricalDistribution(["L1", "L4"]),
        "batch_size": IntDistribution(256, 4096, step=256),
        "dropout": FloatDistribution(0.0, 0.5, step=0.1),
        "temperature": FloatDistribution(0.1, 1),
    }
    fixed = {"weight_decay": 0.0, "epochs": 5}
    written = {**distributions, "weight_decay": CategoricalDistribution([0.0]), "epochs": 5}
    assert parse_space(yaml.safe_load(text)) == Space(distributions, fixed)
    assert parse_space(written) == Space(distributions, fixed)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"learning_rat": [1e-3]}, "learning_rat is no option: did you mean learning_rate?"),
        (
            {"levl": ["L1"], "epoch": [1, 2]},
            "levl is no option: did you mean level?; epoch is no option: did you mean epochs?",
        ),
        ({"untranslated": ["cache"]}, "untranslated is no option"),
        ({"metric": ["auroc"]}, "give it as metric=..."),
        ({"level": ["L1", "L9"]}, "level='L9'; accepted are L0, L1, L2, L3, L4"),
        ({"level": {"low": 1, "high": 2}}, "level=1.0; accepted are L0, L1"),
        ({"dropout": {"lo": 0.1, "high": 0.2}}, "unknown key 'lo' of a range: did you mean low?"),
        ({"dropout": {"low": 0.1}}, "a range needs low and high; high is missing"),
        ({"dropout": {"low": 0.5, "high": 0.1}}, "dropout: `low <= high` must hold, but got (low=0.5, high=0.1)"),
        ({"dropout": {"low": 0.5, "high": 1.0}}, "dropout=1.0 must be in [0, 1)"),
        ({"dropout": {"low": "0", "high": 0.5}}, "low='0' must be a number"),
        ({"weight_decay": {"low": 0.0, "high": 0.1, "log": True}}, "weight_decay: `low > 0` must hold for `log=True`"),
        ({"batch_size": {"low": 1.5, "high": 8}}, "must be whole numbers"),
        ({"batch_size": [32, "many"]}, "batch_size='many' must be a whole number from 1, or None"),
        ({"optimizer": []}, "optimizer: The `choices` must contain one or more elements"),
        ({"ema": [0.9, (1,)]}, "cannot be stored"),
        ({"temperature": [1.0, -1.0]}, "temperature=-1.0; accepted are 'auto' and finite numbers above 0"),
        ({"epochs": 3}, "leaves nothing to try"),
        ({"loss": ["logistic", "exponential"]}, "name a metric"),
        ([("level", "L1")], "must be a mapping"),
    ],
)
def test_errors_of_a_space_name_the_option(space: Any, message: str) -> None:
    with pytest.raises(BadInput) as raised:
        sweep(None, space=space)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "trials=0: Input should be greater than or equal to 1"),
        ({"timeout": 0}, "timeout=0: Input should be greater than 0"),
        ({"timeout": "1h", "jobs": True}, "timeout='1h': Input should be a valid number; jobs=True: Input should be"),
        ({"jobs": 2}, "processes share their trials by a URL"),
        ({"jobs": 2, "storage": "sqlite:///:memory:"}, "processes share their trials by a URL"),
        ({"storage": "sweep.db"}, "give a URL such as sqlite:///sweep.db"),
        ({"storage": "sqlite:////no/such/folder/sweep.db"}, "in a folder that exists"),
        (
            {"objectives": ("metric", "inference_costs")},
            "objectives=('metric', 'inference_costs'): Value error, accepted are ('metric',) and",
        ),
        ({"objectives": "metric"}, "accepted are ('metric',)"),
        ({"objectives": ("metric", "inference_cost"), "pruner": optuna.pruners.NopPruner()}, "leave it out"),
        ({"metric": "auc"}, "metric='auc' is not known"),
        ({"space": {"level": ["L1", "L4"]}, "recipe": None}, "level without effect with a residual model, which the"),
        (
            {"space": {"leaf_rate": [0.1, 1.0], "residual": True}, "recipe": "joint"},
            "leaf_rate without effect with a residual model, which the recipe trains; add residual: false",
        ),
        (
            {"space": {"residual_rank": [0, 4]}, "recipe": "joint"},
            "residual_rank without effect without a residual model; add residual: true",
        ),
    ],
)
def test_wrong_arguments_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as raised:
        sweep(logistic(), **options)
    assert message in str(raised.value)


def test_rows_are_pairs_and_options_of_translate_are_checked() -> None:
    with pytest.raises(BadInput, match=r"valid is a list; a sweep takes \(X, y\)"):
        windtunnel.sweep(logistic(), TRAIN, [VALID], **OPTIONS)
    with pytest.raises(InvalidOption, match="start='hot'"):
        sweep(logistic(), start="hot")


def test_without_optuna_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windtunnel.api.sweep.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"pip install 'windtunnel\[tune\]'"):
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


# Options with an effect


def test_options_are_suggested_where_they_have_an_effect() -> None:
    space = {**SPACE, "residual": [True, False], "residual_rank": [0, 8], "level": ["L1", "L4"]}
    result = sweep(trees(), 8, space=space, recipe=RESIDUAL)
    residual = result.history["residual"]
    assert set(residual) == {True, False} and residual.iloc[0]
    assert result.history["level"].isna().tolist() == residual.tolist()
    assert result.history["residual_rank"].isna().tolist() == (~residual).tolist()
    assert {len(trial.params) for trial in result.study.trials} == {4}
    assert auroc(result.net) == pytest.approx(result.best_value, abs=1e-6)
    assert result.best_value > result.history[~residual]["auroc"].max()
    assert "residual" in [origin.name for origin in result.net.origins]


@pytest.mark.parametrize("significant", [True, False])
def test_the_first_trial_equals_a_default_fit(significant: bool) -> None:
    """Without significant columns for a residual model, ``fit`` trains the translation, with the joint recipe."""
    # The second validation rows have the opposite targets of the training rows.
    valid = VALID if significant else (TRAIN[0], np.where(TRAIN[1] == "yes", "no", "yes"))
    pipeline = logistic()
    alone = windtunnel.translate(pipeline, calibrate=TRAIN[0]).fit(TRAIN, valid, epochs=2, progress=False)
    options = {**OPTIONS, "recipe": None, "space": {"learning_rate": [1e-3, 2e-3, 5e-3], "epochs": 2}, "trials": 1}
    result = windtunnel.sweep(pipeline, TRAIN, valid, calibrate=TRAIN[0], **options)
    assert [epoch.metric for epoch in alone.history.epochs] == [*result.study.trials[0].intermediate_values.values()]
    assert result.best_value == alone.history.best
    assert result.best_options == {"learning_rate": 2e-3 if significant else 1e-3, "epochs": 2}


# Pruning


def test_a_trial_is_pruned_after_an_epoch_but_never_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[int] = []

    class Always(optuna.pruners.BasePruner):
        def prune(self, study: Any, trial: Any) -> bool:
            checked.append(trial.number)
            return trial.number != 2

    result = sweep(logistic(), 4, pruner=Always())
    assert result.history["state"].tolist() == ["complete", "pruned", "complete", "pruned"]
    assert result.history["epochs"].tolist() == [2, 1, 2, 1]
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
    assert set(pruned["learning_rate"]) == {1e-12} and set(pruned["epochs"]) <= {2, 3}


# Two objectives


def test_two_objectives_give_the_pareto_front(tmp_path: Path) -> None:
    options: dict[str, Any] = {"space": {"level": ["L1", "L3"], "learning_rate": [1e-3, 0.13]}, "folder": tmp_path}
    recipe = windtunnel.Recipe(residual=False, epochs=6, tree_rate=1.0, leaf_rate=1.0, ema=0.9)
    result = sweep(trees(), 6, objectives=("metric", "inference_cost"), recipe=recipe, **options)
    table = result.history
    assert len(result.front) == 2
    assert set(table["state"]) == {"complete"}
    points = list(zip(table["auroc"], table["inference_cost"], strict=True))
    dominated = [any(b >= a and d <= c and (b, d) != (a, c) for b, d in points) for a, c in points]
    equal = [points.index(point) < place for place, point in enumerate(points)]
    front = {number for number, out in enumerate(dominated) if not out and not equal[number]}
    assert set(result.front) == front
    assert {int(path.stem) for path in (tmp_path / "trials").iterdir()} == front
    assert result.best_value == max(table["auroc"]) == pytest.approx(auroc(result.net), abs=1e-6)
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


# Storages


def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'sweep.db'}"


@pytest.mark.parametrize("stopped", [0, 2])
def test_a_killed_process_loses_no_trial(stopped: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default trial in this process, by an exception that Optuna does not handle; a later one by SIGKILL."""
    if stopped == 0:
        with monkeypatch.context() as context:
            context.setattr(Objective, "train", interrupt(SystemExit()))
            with pytest.raises(SystemExit):
                sweep(logistic(), 5, storage=url(tmp_path), accelerator="auto")
    else:
        command = [sys.executable, str(CASE), url(tmp_path), "5", str(stopped)]
        assert subprocess.run(command, stderr=subprocess.PIPE, timeout=120).returncode == -9
    before = optuna.load_study(study_name="sweep", storage=url(tmp_path)).trials
    assert [trial.state for trial in before] == [TrialState.COMPLETE] * stopped + [TrialState.RUNNING]
    monkeypatch.setattr(study_module, "GRACE", 1)
    time.sleep(2.1)  # SQLite's clock has whole seconds
    result = sweep(logistic(), 5, storage=url(tmp_path), accelerator="auto")
    study = result.study
    assert len(counted(study)) == 5 == len(result.history)
    states = Counter(trial.state for trial in study.trials)
    assert states == {TrialState.COMPLETE: 5, TrialState.FAIL: 1}
    assert study.trials[stopped].state == TrialState.FAIL
    assert [trial.params for trial in study.trials[:stopped]] == [trial.params for trial in before[:stopped]]
    assert result.history["default"].sum() == 1
    (again,) = (trial for trial in study.trials if trial.system_attrs.get("failed_trial") == stopped)
    assert again.params.items() >= before[stopped].params.items()
    assert auroc(result.net) == pytest.approx(result.best_value, abs=1e-6)


def test_jobs_are_processes_that_share_the_trials(tmp_path: Path) -> None:
    """A process that runs a trial when another one finishes the last one completes it, so one more may be counted."""
    result = sweep(logistic(), 7, storage=url(tmp_path), jobs=2, folder=tmp_path / "models", accelerator="auto")
    trials = counted(result.study)
    assert len(result.history) == len(trials) in (7, 8)
    assert [trial.number for trial in result.study.trials] == list(range(len(trials)))
    assert [trial.number for trial in trials if trial.user_attrs["default"]] == [0]
    assert len({json.dumps(trial.params) for trial in trials}) == len(trials)
    assert [path.stem for path in (tmp_path / "models" / "trials").iterdir()] == [f"{result.front[0]:04d}"]
    best = windtunnel.load(tmp_path / "models" / "best.windtunnel")
    assert auroc(best) == pytest.approx(result.best_value, abs=1e-6)
    more = sweep(logistic(), 7, storage=url(tmp_path), accelerator="auto")
    assert len(more.study.trials) == len(trials)


def test_a_later_call_runs_the_missing_trials_and_finds_the_model(tmp_path: Path) -> None:
    default = sweep(logistic(), 2, storage=url(tmp_path), timeout=1e-9)
    assert default.history["default"].tolist() == [True] and default.best_value == default.default_value
    first = sweep(logistic(), 2, storage=url(tmp_path), folder=tmp_path / "a")
    assert first.history.iloc[:1].equals(default.history)
    same = sweep(logistic(), 2, storage=url(tmp_path), folder=tmp_path / "a")
    assert len(same.study.trials) == 2 and same.best_value == first.best_value
    out_of_time = sweep(logistic(), 4, storage=url(tmp_path), folder=tmp_path / "a", timeout=1e-9)
    assert len(out_of_time.study.trials) == 2
    more = sweep(logistic(), 4, storage=url(tmp_path), folder=tmp_path / "a", timeout=3600)
    assert more.history.iloc[:2].equals(first.history)
    elsewhere = sweep(logistic(), 4, storage=url(tmp_path), folder=tmp_path / "b")
    assert len(elsewhere.study.trials) == 4
    for result in (more, elsewhere):
        assert auroc(result.net) == pytest.approx(result.best_value, abs=1e-6)
        assert auroc(windtunnel.load(result.folder / "best.windtunnel")) == auroc(result.net)


def test_a_study_of_another_problem_is_rejected(tmp_path: Path) -> None:
    sweep(logistic(), 1, storage=url(tmp_path))
    for options, message in (
        ({"metric": "log_loss"}, "metric='auroc' (now 'log_loss')"),
        ({"recipe": replace(QUICK, epochs=1)}, "epochs=2 (now 1)"),
        ({"space": {**SPACE, "epochs": 3}}, "epochs=2 (now 3)"),
        ({"space": {**SPACE, "weight_decay": [0.0, 1.0]}}, "Only the bounds of ranges may change"),
        ({"objectives": ("metric", "inference_cost")}, "objectives=['metric'] (now"),
    ):
        with pytest.raises(BadInput) as raised:
            sweep(logistic(), 2, storage=url(tmp_path), **options)
        assert message in str(raised.value)
    with pytest.raises(BadInput, match="targets="):
        windtunnel.sweep(logistic(), rows(200, 7), VALID, trials=1, storage=url(tmp_path), space=SPACE, **OPTIONS)
    with pytest.raises(BadInput, match="steps="):
        sweep(trees(), 1, storage=url(tmp_path))
    wider = {**SPACE, "learning_rate": {"low": 1e-4, "high": 0.2, "log": True}}
    assert len(sweep(logistic(), 2, storage=url(tmp_path), space=wider).history) == 2


def interrupt(*errors: BaseException | None) -> Callable[..., Any]:
    """``Objective.train`` that raises these errors, one per call."""
    train, remaining = Objective.train, iter(errors)

    def train_or_raise(objective: Objective, *arguments: Any) -> Any:
        if (error := next(remaining, None)) is not None:
            raise error
        return train(objective, *arguments)

    return train_or_raise


def test_an_interrupt_or_error_ends_the_sweep_and_says_in_which_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = KeyboardInterrupt(), None, ZeroDivisionError("by zero")
    monkeypatch.setattr(Objective, "train", interrupt(*errors))
    with pytest.raises(KeyboardInterrupt):
        sweep(logistic(), 3, storage=url(tmp_path))
    with pytest.raises(ZeroDivisionError) as raised:
        sweep(logistic(), 3, storage=url(tmp_path))
    assert "in trial 2 with {'learning_rate':" in raised.value.__notes__[0]
    result = sweep(logistic(), 3, storage=url(tmp_path))
    states = [trial.state.name for trial in result.study.trials]
    assert states == ["FAIL", "COMPLETE", "FAIL", "COMPLETE", "COMPLETE"]
    assert result.history["default"].tolist() == [True, False, False]


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
    before = rcParams.copy()
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
    assert plt.get_fignums() == [figure.number] and dict(rcParams) == dict(before)
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
    assert result.metric == FineTuning(windtunnel.translate(logistic()), QUICK).metric.name == "auroc"


# The command line

CONFIG = """
data: {train: rows.csv, target: clicked}
pipeline:
  categories: [RareCategories: {min_count: 5}, TwoHotEncoder]
  model: {LogisticRegression: {max_iter: 300}}
translate: {calibrate_rows: 50}
recipe: {epochs: 2, batch_size: 100}
sweep:
  trials: 2
  space:
    residual: [true, false]
    learning_rate: {low: 1e-4, high: 1e-1, log: true}
    table_rate: [1.0, 5.0]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    X, y = click_log(400, seed=3)
    X.drop(columns=X.select_dtypes("number")).assign(clicked=y).to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "sweep.yaml").write_text(CONFIG)
    return tmp_path / "sweep.yaml"


def run_command(config: Path, *arguments: object) -> Any:
    fixed = ["sweep", "--config", config, "--data", config.parent, "--output", config.parent / "out"]
    return CliRunner().invoke(app, list(map(str, [*fixed, *arguments])))


def test_the_command_sweeps_and_continues(config: Path) -> None:
    out = config.parent / "out"
    assert run_command(config, "--timeout", 1e-9).exit_code == 0
    assert json.loads((out / "summary.json").read_text())["trials"] == 1
    done = run_command(config, "--trials", 3)
    assert done.exit_code == 0, done.output
    summary = json.loads((out / "summary.json").read_text())
    assert summary["trials"] == 3 == len((out / "history.csv").read_text().splitlines()) - 1
    assert summary["best"] >= summary["default"]
    assert summary["scores"]["best"]["valid"]["auroc"] == pytest.approx(summary["best"], abs=1e-6)
    assert "test auroc" in done.output and f"default {summary['default']:.6f}" in done.output
    assert windtunnel.load(out / "best.windtunnel").classes_.tolist() == [0, 1]
    assert {"sweep.db", "plots", "trials"} <= {path.name for path in out.iterdir()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "sweep.trails=3"], "unknown key 'sweep.trails' (did you mean 'trials'?)"),
        (["--set", "sweep.space={learning_rat: [1.0]}"], "learning_rat is no option: did you mean learning_rate?"),
        (
            ["--trials", "0", "--timeout", "0"],
            "sweep.trials=0: input should be greater than or equal to 1; sweep.timeout=0",
        ),
        (["--storage", "sweep.db"], "give a URL such as sqlite:///sweep.db"),
        (["--set", "translate.calibrate_rows=0"], "give at least 1"),
    ],
)
def test_mistakes_in_the_config_are_one_line(config: Path, arguments: list[str], message: str) -> None:
    done = run_command(config, *arguments)
    assert done.exit_code == 1 and done.stdout == ""
    assert message in done.stderr and len(done.stderr.splitlines()) == 1
