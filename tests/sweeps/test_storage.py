"""Sweeps in a storage: kills, processes, later calls, interrupts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState, create_trial
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sweep_case import QUICK, SPACE, TRAIN, VALID, logistic, rows, trees
from sweep_runs import OPTIONS, auroc, counted, interrupt, sweep, url

import windtunnel
from windtunnel.errors import BadInput
from windtunnel.sweeps import study as study_module
from windtunnel.sweeps.objective import Objective
from windtunnel.sweeps.rows import SharedRows

CASE = Path(__file__).parents[1] / "support" / "jobs" / "sweep_case.py"


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


@pytest.mark.filterwarnings("ignore:Heartbeat of storage is supposed to be used with Study.optimize")
def test_no_two_processes_take_the_same_waiting_trial(tmp_path: Path) -> None:
    with study_module.optuna_messages(shown=False):
        storages = [study_module._open_storage(url(tmp_path)) for _ in range(2)]
    studies = [optuna.create_study(study_name="queue", storage=one, load_if_exists=True) for one in storages]
    for number in range(20):
        studies[0].enqueue_trial({"x": number})
    with ThreadPoolExecutor(2) as threads:
        taken = list(threads.map(lambda study: [study.ask().number for _ in range(10)], studies))
    assert sorted(taken[0] + taken[1]) == list(range(20))


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
    with pytest.raises(BadInput, match="other targets"):
        windtunnel.sweep(logistic(), rows(200, 7), VALID, trials=1, storage=url(tmp_path), space=SPACE, **OPTIONS)
    X, y = TRAIN
    with pytest.raises(BadInput, match="other rows"):
        windtunnel.sweep(logistic(), (X * 1.01, y), VALID, trials=1, storage=url(tmp_path), space=SPACE, **OPTIONS)
    with pytest.raises(BadInput, match="steps="):
        sweep(trees(), 1, storage=url(tmp_path))
    with pytest.raises(BadInput, match="pipeline="):
        sweep(clone(logistic()).set_params(logisticregression__C=0.5).fit(*TRAIN), 1, storage=url(tmp_path))
    wider = {**SPACE, "learning_rate": {"low": 1e-4, "high": 0.2, "log": True}}
    assert len(sweep(logistic(), 2, storage=url(tmp_path), space=wider).history) == 2


def test_rows_that_are_encoded_when_they_are_read_are_told_apart() -> None:
    X, y = TRAIN
    cubes = FunctionTransformer(lambda rows: np.asarray(rows) ** 3)
    source = make_pipeline(cubes, LogisticRegression()).fit(X, y)
    net = windtunnel.translate(source, untranslated="stream", calibrate=X)
    assert net.hosts
    first, again, other = (SharedRows(net, (rows, y), VALID).fingerprint() for rows in (X, X, X * 1.01))
    assert first == again and {name for name in first if first[name] != other[name]} == {"rows"}


def test_studies_in_one_folder_keep_their_models(tmp_path: Path) -> None:
    options = {"storage": url(tmp_path), "folder": tmp_path}
    first = sweep(logistic(), 1, study_name="a", **options)
    sweep(trees(), 1, study_name="b", **options)
    again = sweep(logistic(), 1, study_name="a", **options)
    np.testing.assert_array_equal(again.net.predict_proba(VALID[0]), first.net.predict_proba(VALID[0]))


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


def test_the_best_model_of_another_process_is_kept(tmp_path, monkeypatch):
    """Another process ends a better trial between the two readings of the study."""
    folder = tmp_path / "trials"
    folder.mkdir()
    objective = SimpleNamespace(model_path=lambda number: folder / f"{number}.windtunnel")
    sweep, front_of = optuna.create_study(direction="maximize"), study_module.pareto_front
    sweep.add_trial(create_trial(value=1.0))
    objective.model_path(0).write_bytes(b"first")

    def front_before_another_process(of):
        front = front_of(of)
        monkeypatch.setattr(study_module, "pareto_front", front_of)
        sweep.add_trial(create_trial(value=2.0))
        objective.model_path(1).write_bytes(b"second")
        study_module.keep_best_models(sweep, objective)
        return front

    monkeypatch.setattr(study_module, "pareto_front", front_before_another_process)
    study_module.keep_best_models(sweep, objective)
    assert objective.model_path(1).read_bytes() == b"second"


def test_a_study_with_other_calibration_rows_is_rejected(tmp_path):
    space = {"residual": [False], "learning_rate": [1e-3, 2e-3]}
    options = {"space": space, "trials": 1, "storage": url(tmp_path), "progress": False}
    windtunnel.sweep(logistic(), TRAIN, VALID, calibrate=TRAIN[0][:50], **options)
    with pytest.raises(BadInput, match="other calibration rows"):
        windtunnel.sweep(logistic(), TRAIN, VALID, calibrate=TRAIN[0][:40], **options)
