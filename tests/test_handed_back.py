"""What ``fit`` hands back is what its history tells of, and answers as the source's kind does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
from lightgbm import LGBMClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from torch.utils.data import DataLoader

import windtunnel
from windtunnel.errors import BadInput
from windtunnel.trainers.branching import Plan


def rows(count: int = 1_500) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    X = random.normal(size=(count, 3)).round(1)
    return X, X[:, 0] + np.where(X[:, 1] * X[:, 2] > 0, 2.0, -2.0) + 0.5 * random.normal(size=count)


def parts(y: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    X, _ = rows()
    return (X[:1_000], y[:1_000]), (X[1_000:], y[1_000:])


def test_columns_that_the_guard_rejects_are_not_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    holds = Plan.holds

    def but_columns(plan: Plan, judge: Any, without: Any, having: Any) -> bool:
        return having != plan.whole and holds(plan, judge, without, having)

    monkeypatch.setattr(Plan, "holds", but_columns)
    train, valid = parts(rows()[1] > 0)
    options = {"epochs": 2, "batch_size": 256, "progress": False}
    net = windtunnel.translate(LogisticRegression().fit(*train)).fit(train, valid, **options)
    assert [one.name for one in net.origins][-1] == "branch"  # its combinations stay
    assert net.history is not None and net.history.best_epoch == 0 and len(net.history.epochs) > 1
    assert roc_auc_score(valid[1], net.predict_proba(valid[0])[:, 1]) == pytest.approx(net.history.best, abs=1e-4)


@pytest.mark.parametrize("scale", [1e-5, 1e5])
def test_a_branch_goes_by_no_unit_of_the_target(scale: float) -> None:
    y = rows()[1]
    found = []
    for unit in (1.0, scale):
        train, valid = parts(y * unit)
        net = windtunnel.translate(Ridge().fit(*train)).fit(train, valid, epochs=1, progress=False)
        assert net.history is not None
        found.append(net.history.best / net.history.start)
    assert found[0] < 0.8
    assert found[1] == pytest.approx(found[0], rel=1e-2)


def test_probabilities_stay_such_when_trees_are_trained() -> None:
    train, valid = parts(rows()[1] > 0)
    source = RandomForestClassifier(10, max_depth=3, random_state=0).fit(*train)
    net = windtunnel.translate(source, calibrate=train[0])
    net.fit(train, valid, branch=False, epochs=4, learning_rate=0.05, metric="loss", progress=False)
    assert net.history is not None and net.history.best_epoch > 0
    assert not ((0 <= (scores := net.scores(valid[0]))) & (scores <= 1)).all()
    given = net.predict_proba(valid[0])
    assert ((0 <= given) & (given <= 1)).all()
    np.testing.assert_allclose(given.sum(axis=1), 1, rtol=1e-12)


def test_a_data_loader_to_judge_by() -> None:
    train, valid = parts(rows()[1] > 0)
    held = DataLoader([*zip(*valid, strict=True)], batch_size=100)  # type: ignore[arg-type]
    net = windtunnel.translate(LGBMClassifier(n_estimators=3, verbosity=-1, n_jobs=1).fit(*train))
    net.fit(train, held, epochs=1, progress=False)
    assert net.history is not None and net.history.judged_on == "validation rows"


def test_a_trainer_that_is_done_is_refused_and_a_callback_need_not_be_in_a_list() -> None:
    train, valid = parts(rows()[1] > 0)
    trainer = pl.Trainer(max_epochs=1, logger=False, enable_progress_bar=False, enable_checkpointing=False)
    source = LogisticRegression().fit(*train)
    windtunnel.translate(source).fit(train, valid, branch=False, trainer=trainer)
    with pytest.raises(BadInput, match="has trained its 1 epochs before"):
        windtunnel.translate(source).fit(train, valid, branch=False, trainer=trainer)
    net = windtunnel.translate(source)
    net.fit(train, valid, branch=False, epochs=1, callbacks=pl.Callback(), progress=False)
    assert net.history is not None and len(net.history.epochs) == 2
