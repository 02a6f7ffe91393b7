"""``fit`` returns the model that its history describes, with outputs of the kind of the source's."""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn import metrics as sk
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import FixedThresholdClassifier
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader
from xgboost import XGBRegressor

import windtunnel
from windtunnel.errors import BadFile, BadInput, InvalidOption
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.modules.trees.soft.trees import SoftTrees
from windtunnel.trainers.candidates import installed_part
from windtunnel.trainers.loop.evaluation import Evaluation
from windtunnel.trainers.residual import residual_training
from windtunnel.trainers.residual.half_models import HalfModels
from windtunnel.trainers.residual.preparation import NoResidual
from windtunnel.trainers.significance.significance_test import SignificanceTest

INSIGNIFICANT = SignificanceTest(0.0, 1.0, rows=500, reason="no gain")


def rows(count: int = 1_500) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    X = random.normal(size=(count, 3)).round(1)
    return X, X[:, 0] + np.where(X[:, 1] * X[:, 2] > 0, 2.0, -2.0) + 0.5 * random.normal(size=count)


def parts(y: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    X, _ = rows()
    return (X[:1_000], y[:1_000]), (X[1_000:], y[1_000:])


@pytest.mark.parametrize("options", [{"precision": "64-true"}, {"resume_from": "nowhere"}])
@pytest.mark.parametrize("recipe", [{"recipe": "joint"}, {"joint": True}])
def test_a_fit_that_fails_leaves_the_translation_as_it_was(options: dict[str, Any], recipe: dict[str, Any]) -> None:
    train, valid = parts(rows()[1] > 0)
    source = LGBMClassifier(n_estimators=5, verbosity=-1, n_jobs=1).fit(*train)
    net = windtunnel.translate(source, calibrate=train[0])
    with pytest.raises((BadInput, InvalidOption, BadFile)):
        net.fit(train, valid, progress=False, **recipe, **options)
    np.testing.assert_array_equal(net.predict_proba(valid[0]), windtunnel.translate(source).predict_proba(valid[0]))
    assert net.softening_pending and not net.training and not any(one.requires_grad for one in net.parameters())
    history = net.fit(train, valid, progress=False, max_steps=2, **recipe).history
    assert history is not None and "joint training" in [candidate.name for candidate in history.candidates]


def test_columns_that_are_not_significant_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        residual_training,
        "_other_half_scores",
        lambda setup, *_: (torch.zeros_like(setup.half_models.interaction_scores), None),
    )
    train, valid = parts(rows()[1] > 0)
    options = {"epochs": 2, "batch_size": 256, "progress": False}
    net = windtunnel.translate(LogisticRegression().fit(*train)).fit(train, valid, **options)
    assert [one.name for one in net.origins][-1] == "residual"  # its combinations stay
    assert net.history is not None and net.history.best_epoch == 0 and len(net.history.epochs) > 1
    assert roc_auc_score(valid[1], net.predict_proba(valid[0])[:, 1]) == pytest.approx(net.history.best, abs=1e-4)
    net = windtunnel.translate(LogisticRegression().fit(*train))
    net.fit(train, valid, **options, select="best_epoch", learning_rate=1e-30)
    assert net.history is not None
    assert "no epoch improves auroc" in [candidate.reason for candidate in net.history.candidates]


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_a_residual_model_does_not_depend_on_the_unit_of_the_target(scale: float) -> None:
    X, y = rows()
    y = y + np.sin(3 * X[:, 0])  # what the columns of the residual model fit; an interaction fits the rest
    found = []
    for unit in (1.0, scale):
        train, valid = parts(y * unit)
        net = windtunnel.translate(Ridge().fit(*train)).fit(train, valid, progress=False)
        assert net.history is not None
        assert net.history.kept.name == "residual model"
        found.append(net.history.best / net.history.start)
    assert found[0] < 0.8
    assert found[1] == pytest.approx(found[0], rel=1e-4)


def test_probabilities_stay_within_0_and_1_when_trees_are_trained() -> None:
    train, valid = parts(rows()[1] > 0)
    source = RandomForestClassifier(10, max_depth=3, random_state=0).fit(*train)
    net = windtunnel.translate(source, calibrate=train[0])
    net.fit(train, valid, residual=False, epochs=4, learning_rate=0.05, metric="loss", progress=False)
    assert net.history is not None and net.history.best_epoch > 0
    assert not ((0 <= (scores := net.scores(valid[0]))) & (scores <= 1)).all()
    given = net.predict_proba(valid[0])
    assert ((0 <= given) & (given <= 1)).all()
    np.testing.assert_allclose(given.sum(axis=1), 1, rtol=1e-12)


def test_a_data_loader_of_validation_rows() -> None:
    train, valid = parts(rows()[1] > 0)
    held = DataLoader([*zip(*valid, strict=True)], batch_size=100)  # type: ignore[arg-type]
    net = windtunnel.translate(LGBMClassifier(n_estimators=3, verbosity=-1, n_jobs=1).fit(*train))
    net.fit(train, held, epochs=1, progress=False)
    assert net.history is not None and net.history.validated_on == "validation rows"


def test_a_trainer_that_is_done_is_rejected_and_a_callback_need_not_be_in_a_list() -> None:
    train, valid = parts(rows()[1] > 0)
    trainer = pl.Trainer(max_epochs=1, logger=False, enable_progress_bar=False, enable_checkpointing=False)
    source = LogisticRegression().fit(*train)
    windtunnel.translate(source).fit(train, valid, residual=False, trainer=trainer)
    with pytest.raises(BadInput, match="has trained its 1 epochs before"):
        windtunnel.translate(source).fit(train, valid, residual=False, trainer=trainer)
    net = windtunnel.translate(source)
    net.fit(train, valid, residual=False, epochs=1, callbacks=pl.Callback(), progress=False)
    assert net.history is not None and len(net.history.epochs) == 2


BOOSTED: dict[str, Any] = {"n_estimators": 40, "num_leaves": 8, "verbosity": -1, "n_jobs": 1}
SOURCES: dict[str, tuple[list[Any], list[str]]] = {
    "value": ([LGBMRegressor(**BOOSTED), Ridge()], ["rmse", "r2"]),
    "two values": ([XGBRegressor(n_estimators=15, n_jobs=1)], ["rmse", "r2"]),
    "two classes": ([LGBMClassifier(**BOOSTED), LogisticRegression()], ["auroc", "accuracy", "log_loss"]),
    "three classes": (
        [LGBMClassifier(**BOOSTED), RandomForestClassifier(8, max_depth=4, random_state=0)],
        ["accuracy", "log_loss"],
    ),
}


def of_kind(kind: str, product: bool) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Many columns, and with a product or nothing but a sum to be found in them."""
    random = np.random.default_rng(1)
    X = random.normal(size=(900, 12))
    s = X[:, 0] + product * np.where(X[:, 1] * X[:, 2] > 0, 1.5, -1.5) + random.normal(size=900)
    cuts = {"two classes": [0.0], "three classes": [-0.7, 0.7]}
    y = np.digitize(s, cuts[kind]) if kind in cuts else np.stack([s, 10 * s**2], axis=1) if "two" in kind else s
    return (X[:500], y[:500]), (X[500:], y[500:])


def score(metric: str, model: Any, X: Any, y: Any) -> float:
    """The score of scikit-learn for the outputs, larger where they are better."""
    match metric:
        case "auroc":
            return float(sk.roc_auc_score(y, model.predict_proba(X)[:, 1]))
        case "log_loss":
            return -float(sk.log_loss(y, model.predict_proba(X)))
        case "rmse":
            return -float(sk.root_mean_squared_error(y, model.predict(X)))
    score = sk.accuracy_score if metric == "accuracy" else sk.r2_score
    return float(score(y, model.predict(X)))


@pytest.mark.parametrize("kind", SOURCES)
def test_the_history_has_the_metric_of_the_result_which_is_no_worse(kind: str) -> None:
    kept = set()
    for source in SOURCES[kind][0]:
        for metric in SOURCES[kind][1]:
            for product in (False, True):
                train, valid = of_kind(kind, product)
                net = windtunnel.translate(source.fit(*train), calibrate=train[0], temperature=0.5).soften()
                before = [score(metric, model, *valid) for model in (net, source)]
                net.fit(train, valid, metric=metric, epochs=2, learning_rate=5e-3, progress=False, accelerator="cpu")
                assert net.history is not None
                kept.add(net.origins[-1].name == "residual")
                sign = 1 if net.history.greater_is_better else -1
                now = score(metric, net, *valid)
                assert sign * net.history.start == pytest.approx(before[0], rel=1e-6)
                assert sign * net.history.best == pytest.approx(now, rel=1e-6)
                assert now >= max(before) - 1e-6 * abs(now)
    assert kept == {False, True}


def test_without_a_significant_residual_model_the_exact_trees_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HalfModels, "compare", lambda *_: INSIGNIFICANT)
    train, valid = of_kind("two values", product=True)
    source = XGBRegressor(n_estimators=5, n_jobs=1).fit(*train)  # too few for tree-block weights
    net = windtunnel.translate(source, calibrate=train[0], temperature=1.0).soften()
    assert score("r2", net, *valid) < score("r2", source, *valid)
    net.fit(train, valid, metric="r2", epochs=1, progress=False)
    np.testing.assert_allclose(net.predict(valid[0]), source.predict(valid[0]), rtol=1e-5, atol=1e-5)
    assert net.history is not None
    assert net.history.best == pytest.approx(score("r2", source, *valid), rel=1e-6)
    net.fit(train, valid, recipe="joint", metric="r2", epochs=1, progress=False)  # softens them again
    assert "joint training" in [candidate.name for candidate in net.history.candidates]
    assert score("r2", net, *valid) >= score("r2", source, *valid) - 1e-6


def test_trees_trained_without_a_residual_model_are_replaced_by_a_better_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing = NoResidual("the rows are too few", only_rows_prevent_it=True)
    monkeypatch.setattr("windtunnel.trainers.candidates.train_candidates.prepare_residual", lambda *_: nothing)
    train, valid = of_kind("three classes", product=True)
    source = LGBMClassifier(**BOOSTED).fit(*train)
    options: Any = {"metric": "accuracy", "epochs": 1, "learning_rate": 1e-6, "progress": False}
    for temperature, better in ((3.0, True), (0.01, False)):
        net = windtunnel.translate(source, calibrate=train[0], temperature=temperature).soften()
        came = score("accuracy", net, *valid)
        assert (score("accuracy", source, *valid) > came) == better
        net.fit(train, valid, **options)
        assert net.history is not None
        assert isinstance(net.program.steps[-1].module, HardTrees) == better
        assert net.history.start == pytest.approx(came)
        assert net.history.best == pytest.approx(score("accuracy", net, *valid))
        assert score("accuracy", net, *valid) >= max(came, score("accuracy", source, *valid))
        if better:
            np.testing.assert_allclose(net.predict_proba(valid[0]), source.predict_proba(valid[0]), atol=1e-5)
    # Whatever the recipe, the result is no worse than the source.
    for temperature, trained in ((3.0, HardTrees), (0.01, SoftTrees)):
        net = windtunnel.translate(source, calibrate=train[0], temperature=temperature).soften()
        net.fit(train, valid, recipe="joint", **options)
        assert isinstance(net.program.steps[-1].module, trained)


@pytest.mark.parametrize("temperature", [3.0, 0.01])
def test_labels_by_a_threshold_are_validated_as_predicted(temperature: float) -> None:
    (X, y), valid = of_kind("three classes", product=True)
    train, valid = (X, y > 0), (valid[0], valid[1] > 0)
    model = FixedThresholdClassifier(LGBMClassifier(**BOOSTED), threshold=0.8, response_method="predict_proba")
    net = windtunnel.translate(model.fit(*train), calibrate=X, temperature=temperature).soften()
    net.fit(train, valid, metric="accuracy", epochs=1, learning_rate=1e-6, progress=False)
    assert net.history is not None
    assert net.history.best == pytest.approx(score("accuracy", net, *valid))
    assert net.history.best >= score("accuracy", model, *valid)


def test_a_booster_that_does_not_tell_its_classes() -> None:
    train, valid = of_kind("three classes", product=False)
    net = windtunnel.translate(LGBMClassifier(**BOOSTED).fit(*train).booster_, calibrate=train[0])
    with pytest.raises(BadInput, match="the source is a Booster of several classes, .* fit a classifier"):
        net.fit(train, valid, progress=False)


@pytest.mark.parametrize("switch", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("options", [{}, {"residual": False}])
def test_fit_where_the_caller_has_switched_gradients_off(switch: Any, options: dict[str, Any]) -> None:
    train, valid = parts(rows()[1] > 0)
    source = LGBMClassifier(n_estimators=5, verbosity=-1, n_jobs=1).fit(*train)
    net = windtunnel.translate(source, calibrate=train[0])
    with switch():
        history = net.fit(train, valid, epochs=1, progress=False, **options).history
    assert history is not None and len(history.epochs) == 2


def test_a_change_that_is_no_better_than_the_source_once_it_is_shrunken_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train, valid = parts(rows()[1] > 0)
    net = windtunnel.translate(LogisticRegression().fit(*train))
    start = windtunnel.translate(LogisticRegression().fit(*train)).fit(train, valid, epochs=1, progress=False).history
    assert start is not None
    monkeypatch.setattr(installed_part, "_evaluate_part", lambda *_: Evaluation(0.0, start.start))
    history = net.fit(train, valid, epochs=1, progress=False).history
    assert history is not None and history.kept is not None and history.kept.name == "translation"
    assert any("gives no better auroc than translation" in candidate.reason for candidate in history.candidates)


def test_soft_trees_that_are_kept_without_an_epoch_are_no_translation_as_it_was() -> None:
    random = np.random.default_rng(1)
    X = random.normal(size=(900, 3))
    y = X[:, 0] + 2 * random.normal(size=900) > 0
    net = windtunnel.translate(LGBMClassifier(n_estimators=5, num_leaves=7, verbosity=-1).fit(X[:400], y[:400]))
    net.fit((X[:400], y[:400]), (X[400:], y[400:]), recipe="joint", max_steps=1, learning_rate=1e-9, progress=False)
    history = net.history
    assert history is not None and history.kept is not None
    assert [each.name for each in history.candidates][:2] == ["source pipeline", "soft trees"]
    assert history.kept.name == "soft trees" and history.changed and history.start == history.candidates[0].metric


def test_a_custom_loss_may_hold_what_cannot_be_copied() -> None:
    class Locked:
        def __init__(self) -> None:
            self.lock = Lock()

        def __call__(self, scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
            return binary_cross_entropy_with_logits(scores[:, 0], target.to(scores))

    X = np.random.default_rng(0).normal(size=(500, 3))
    net = windtunnel.translate(LogisticRegression().fit(X, X[:, 0] > 0))
    net.fit((X, X[:, 0] > 0), loss=Locked(), residual=False, epochs=1, progress=False)
    assert net.history is not None and net.history.metric == "loss"


def test_the_pipeline_is_no_epoch_of_a_residual_model_whose_factors_are_random() -> None:
    X = np.random.default_rng(0).normal(size=(3000, 3))
    y = X[:, 0] + np.random.default_rng(1).normal(size=3000) > 0
    net = windtunnel.translate(LogisticRegression().fit(X[:1500], y[:1500]))
    net.fit((X[:1500], y[:1500]), (X[1500:], y[1500:]), progress=False)
    history = net.history
    assert history is not None
    translation = next(each for each in history.candidates if each.name == "translation")
    assert len(history.epochs) > 1 and translation.epoch is None
