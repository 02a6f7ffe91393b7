"""Exact trees until soft ones are needed."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from case import NUMBERS, quick, table, targets
from lightgbm import LGBMClassifier
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from xgboost import XGBClassifier

import windtunnel
from windtunnel.errors import BadInput
from windtunnel.modules.trees import HardTrees, SoftTrees
from windtunnel.program.records import fidelity
from windtunnel.program.records.fidelity import r2_score

X, Y = table()[list(NUMBERS)], targets(table())["label"]


def net(**options: Any) -> windtunnel.Translation:
    return windtunnel.translate(make_pipeline(StandardScaler(), quick()).fit(X, Y), calibrate=X, **options)


def trainable(given: windtunnel.Translation) -> list[str]:
    return [name for name, parameter in given.named_parameters() if parameter.requires_grad]


def test_trees_are_exact_until_soften_is_called() -> None:
    lazy = net(level="L2")
    assert isinstance(lazy.program.steps[-1].module, HardTrees) and not trainable(lazy)
    assert lazy.fidelity.r2 > 1 - 1e-9 and "exact: every step" in str(lazy.report())
    before = lazy.scores(X)
    assert lazy.soften() is lazy and isinstance(lazy.program.steps[-1].module, SoftTrees)
    assert any("threshold" in name for name in trainable(lazy)) and any("steps.0." in name for name in trainable(lazy))
    assert not lazy.softening_pending and 0.999 < lazy.fidelity.r2 < 1
    soft = lazy.scores(X)
    assert not torch.equal(soft, before) and torch.equal(lazy.soften().scores(X), soft)


def test_a_custom_loop_is_told_to_soften_first() -> None:
    lazy, batch = net(), net().encode(X)
    with pytest.raises(BadInput, match=r"call net.soften\(\) before the optimizer"):
        lazy.train()(*batch)
    with torch.no_grad():
        assert torch.equal(lazy(*batch), lazy.scores(X))
    with pytest.raises(BadInput, match=r"call net.soften\(\) before the optimizer"):
        lazy.eval()(*batch).sum().backward()
    lazy.soften().train()(*batch).sum().backward()
    assert all(one.grad is not None for one in lazy.parameters() if one.requires_grad)


def test_nothing_is_frozen_where_nothing_has_to_become_soft() -> None:
    linear = windtunnel.translate(make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y), calibrate=X)
    assert linear.softening is None and trainable(linear)
    linear.train()(*linear.encode(X)).sum().backward()


def test_joint_training_starts_from_the_trees_that_soften_makes() -> None:
    options: Any = {"recipe": "joint", "epochs": 1, "progress": False, "accelerator": "cpu"}
    lazy, softened = net(), net().soften()
    for each in (lazy, softened):
        each.fit((X, Y), (X, Y), **options)
    assert [epoch.metric for epoch in lazy.history.epochs] == [epoch.metric for epoch in softened.history.epochs]
    assert torch.equal(lazy.scores(X), softened.scores(X))


def test_a_loaded_file_has_the_plan_and_takes_the_rows_again(tmp_path: Path) -> None:
    lazy = net(level="L1")
    lazy.save(tmp_path / "net")
    loaded, copied = windtunnel.load(tmp_path / "net"), copy.deepcopy(lazy)
    assert loaded.softening == lazy.softening and loaded.calibration is None and not trainable(loaded)
    scores = lazy.soften().scores(X)
    assert torch.equal(loaded.soften(X).scores(X), scores) and torch.equal(copied.soften().scores(X), scores)
    assert trainable(loaded) == trainable(lazy) == trainable(copied)


def test_joint_training_of_a_loaded_file_softens_with_its_own_rows(tmp_path: Path) -> None:
    lazy = net()
    lazy.save(tmp_path / "net")
    loaded = windtunnel.load(tmp_path / "net")
    for each in (lazy, loaded):
        each.fit((X, Y), (X, Y), recipe="joint", epochs=1, progress=False, accelerator="cpu")
    assert loaded.fidelity.rows == len(X) and torch.equal(loaded.scores(X), lazy.scores(X))


def test_soft_trees_that_a_fit_made_exact_again_can_become_soft() -> None:
    exact = net()
    labels, scores = exact.predict(X), exact.scores(X)
    soft = net(temperature=1.0).soften()
    names = trainable(soft)
    soft.fit((X, Y), (X, labels), epochs=1, progress=False, accelerator="cpu")
    assert [each.name for each in soft.history.candidates if each.kept] == ["source pipeline"]
    assert torch.equal(soft.scores(X), scores) and trainable(soft.soften()) == names


def test_an_interrupt_leaves_exact_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    lazy = net()
    before = lazy.scores(X)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("windtunnel.program.softening.r2_score", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lazy.soften()
    assert torch.equal(lazy.scores(X), before) and not trainable(lazy)
    assert torch.equal(lazy.soften().scores(X), net().soften().scores(X))


def test_few_of_many_rows_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fidelity, "MAX_SAMPLED_ROWS", 50)
    rows = net().calibration
    assert rows is not None and len(rows.batch.ids) == len(rows.outputs) == 50
    np.testing.assert_allclose(rows.outputs[[0, -1]], net().predict_proba(X)[[0, -1]], atol=1e-6)


def test_categories_that_the_calibration_rows_lack_keep_their_scores() -> None:
    """Rows in the order of time: the first ones, given for calibration, all have the same month."""
    random = np.random.default_rng(0)
    month = np.sort(random.integers(1, 5, 4800)).astype(str)
    rows = pd.DataFrame({"month": month, "x": random.normal(size=4800).round(1)})
    y = rows["x"] + random.permutation(4)[month.astype(int) - 1] / 3 + random.normal(size=4800) > 1
    columns = ColumnTransformer([("month", windtunnel.TwoHotEncoder(), ["month"])], remainder="passthrough")
    source = make_pipeline(columns, LGBMClassifier(n_estimators=20, num_leaves=8, verbosity=-1)).fit(rows, y)
    exact = windtunnel.translate(source, calibrate=rows[:1000])
    before = exact.scores(rows)
    after = exact.soften().scores(rows)
    assert rows["month"][:1000].nunique() == 1
    assert r2_score(after, before) > 0.999


def test_trees_of_a_file_know_where_the_values_of_the_data_are(tmp_path: Path) -> None:
    """XGBoost puts a threshold right below a value, which a file must not forget."""
    random = np.random.default_rng(0)
    rows = random.integers(0, 8, (2000, 5)).astype(float)
    source = XGBClassifier(n_estimators=30, max_depth=4).fit(rows, rows[:, 0] * rows[:, 1] + rows[:, 2] > 14)
    net = windtunnel.translate(source)
    net.save(tmp_path / "net")
    for form in (net, windtunnel.load(tmp_path / "net")):
        np.testing.assert_allclose(form.soften().predict_proba(rows), source.predict_proba(rows), atol=0.01)


def test_exact_trees_are_not_those_of_the_source_once_a_step_before_them_has_learned() -> None:
    soft = net().soften()
    assert soft.exact_modules
    with torch.no_grad():
        scaler: Any = soft.program.steps[0].module
        scaler.shift.add_(0.5)
    soft.drop_trained_exact_modules()
    assert not soft.exact_modules
