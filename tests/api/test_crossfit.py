"""Cross-fitting: folds, members, and the comparison with the fitted pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import pytorch_lightning as pl
import torch
from city_rows import NUMBERS, OPTIONS, encoded, frame, labelled, trees
from lightgbm import LGBMClassifier, LGBMRegressor
from scipy import sparse
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

import windtunnel
from windtunnel.api.crossfit import _validation_losses
from windtunnel.errors import BadInput, InvalidOption, UnsupportedEstimator
from windtunnel.trainers.data.encoded_rows import EncodedRows
from windtunnel.trainers.recipe import Recipe


@pytest.mark.parametrize("folds", ["random", "groups", "time"])
def test_crossfit(folds: str) -> None:
    X, held = frame(), frame(1500, seed=5)
    y, z = labelled(X, "label"), labelled(held, "label", 5)
    by: dict[str, Any] = {"random": {}, "groups": {"groups": X["city"]}, "time": {"time": X["age"]}}[folds]
    net = windtunnel.crossfit(unfitted(), X, y, valid=(held, z), folds=3, **by, **OPTIONS)
    assert net.history.best > net.history.start + 0.03 and list(net.classes_) == ["no", "yes"]
    members = [(one.predict(held) == z).mean() for one in source_members(X, y, **by)]
    assert (net.predict(held) == z).mean() > max(members)


def unfitted() -> Any:
    return make_pipeline(encoded(), trees(LGBMClassifier))


def source_members(X: pd.DataFrame, y: np.ndarray, **by: Any) -> list[Any]:
    return list(windtunnel.CrossFittedClassifier(unfitted(), folds=3).fit(X, y, **by).estimators_)


def test_crossfit_returns_a_fitted_pipeline_that_is_better_than_members(tmp_path: Path) -> None:
    X, held = frame(90), frame(1500, seed=5)
    y, z = labelled(X, "value"), labelled(held, "value", 5)
    source = make_pipeline(encoded(), LGBMRegressor(min_child_samples=30, verbosity=-1)).fit(X, y)
    for checkpoints in ({"checkpoint_dir": tmp_path}, {"resume_from": tmp_path}):  # of the members alone
        with pytest.warns(UserWarning, match="are worse than the fitted"):
            net = windtunnel.crossfit(source, X, y, valid=(held, z), folds=2, **OPTIONS, **checkpoints)
        assert not any("estimators_" in origin.name for origin in net.origins)


def test_a_trainer_of_the_caller_trains_the_members_alone() -> None:
    X, held = frame(), frame(1500, seed=5)
    y, z = labelled(X, "label"), labelled(held, "label", 5)
    off = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", **off)
    net = windtunnel.crossfit(unfitted().fit(X, y), X, y, valid=(held, z), folds=2, trainer=trainer, progress=False)
    assert trainer.current_epoch == 1 and len(net.history.epochs) == 2  # that before training, and one


@pytest.mark.parametrize("objective", ["poisson", "gamma", "regression_l1", "quantile"])
def test_members_are_compared_with_the_source_by_its_own_loss(objective: str) -> None:
    """Members that predict what the source predicts are exactly as good."""
    X = frame(400)
    y = np.exp(np.asarray(labelled(X, "value")) / 200)
    source = make_pipeline(encoded(), LGBMRegressor(objective=objective, n_estimators=10, verbosity=-1)).fit(X, y)
    members = windtunnel.CrossFittedRegressor(source, folds=2).fit(X, y)
    members.estimators_ = [source, source]
    net, members = windtunnel.compile(source), windtunnel.compile(members)
    ours, theirs = _validation_losses(members, net, Recipe(), (X, y))
    assert len(theirs.loss) > 50 and theirs.loss.std() > 0
    torch.testing.assert_close(ours.loss, theirs.loss, rtol=1e-5, atol=1e-5)


def test_crossfit_takes_rows_and_target_as_two_arguments() -> None:
    with pytest.raises(windtunnel.BadInput, match="as two arguments"):
        windtunnel.crossfit(RidgeClassifier(), (np.ones((4, 2)), [0, 1, 0, 1]), None)


def test_crossfit_without_validation_rows() -> None:
    X = frame()
    net = windtunnel.crossfit(make_pipeline(encoded(), Ridge()), X, labelled(X, "value"), folds=3, **OPTIONS)
    assert net.history.validated_on == "out-of-fold rows" and net.history.best < 0.8 * net.history.start


def test_numbers_of_a_fit_are_of_out_of_fold_scores() -> None:
    """On the held-out rows, which most members have seen, the AUC of the members themselves is nearly 1."""
    X = frame(2000)
    y, time, held_out = labelled(X, "label"), np.arange(2000), slice(1800, None)
    columns = make_column_transformer((OrdinalEncoder(), ["city", "day"]), ("passthrough", ["age", "fee"]))
    source = make_pipeline(columns, RandomForestClassifier(3, max_features=1, random_state=0))
    net = windtunnel.crossfit(source, X, y, folds=3, time=time, metric="auroc", epochs=2, **OPTIONS)
    out_of_fold = windtunnel.CrossFittedClassifier(source, folds=3, random_state=0).fit(X, y, time=time).out_of_fold(X)
    history, of_net = net.history, net.predict_proba(X)
    assert history.start == pytest.approx(roc_auc_score(y[held_out], out_of_fold[held_out, 1]), abs=1e-6)
    assert any(candidate.kept and candidate.installed_part < 1 for candidate in history.candidates)
    assert history.best < roc_auc_score(y[held_out], of_net[held_out, 1]) - 0.05
    before, after = history.calibration.before, history.calibration.after
    assert np.dot(before.predicted, before.weight) == pytest.approx(out_of_fold[held_out, 1].mean())
    assert np.dot(after.predicted, after.weight) != pytest.approx(of_net[held_out, 1].mean())


def test_members_over_wide_sparse_rows_have_out_of_fold_scores_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windtunnel.trainers.data.loader.DENSE_BYTES_OF_FIT", 0)
    random = np.random.default_rng(0)
    X = sparse.random_array((400, 1200), density=0.01, format="csr", rng=random)
    y, time, held_out = random.integers(0, 2, 400), np.arange(400), slice(360, None)
    net = windtunnel.crossfit(LogisticRegression(C=100), X, y, folds=2, time=time, **OPTIONS)
    members = windtunnel.CrossFittedClassifier(LogisticRegression(C=100), folds=2, random_state=0)
    out_of_fold = members.fit(X, y, time=time).out_of_fold(X)[held_out, 1]
    assert net.history.start == net.history.best == pytest.approx(roc_auc_score(y[held_out], out_of_fold), abs=1e-6)
    assert net.history.calibration is None


@pytest.mark.parametrize("option", ["groups", "time"])
def test_crossfit_validates_on_other_groups_or_later_rows(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X = frame()
    key = np.arange(len(X)) % 40
    split = EncodedRows.hold_out
    masks: list[Any] = []

    def recorded(rows: EncodedRows, *arguments: Any) -> Any:
        masks.append(rows.held_out)
        return split(rows, *arguments)

    monkeypatch.setattr(EncodedRows, "hold_out", recorded)
    options = {option: key, **OPTIONS}
    net = windtunnel.crossfit(make_pipeline(encoded(), Ridge()), X, labelled(X, "value"), folds=3, **options)
    assert net.history.validated_on == "out-of-fold rows"
    (mask,) = masks
    held_out = mask.numpy()
    assert held_out.sum() == pytest.approx(len(X) / 10, abs=1)
    if option == "groups":
        assert not {*key[held_out]} & {*key[~held_out]}
    else:
        assert key[held_out].min() >= key[~held_out].max()


def test_out_of_fold_predictions_come_from_the_member_that_was_not_fitted_on_the_row() -> None:
    X = frame(400)
    y = labelled(X, "label")
    source = windtunnel.CrossFittedClassifier(unfitted(), folds=4).fit(X, y)
    probabilities = source.out_of_fold(X)
    for fold, member in enumerate(source.estimators_):
        rows = source.fold_ == fold
        np.testing.assert_array_equal(probabilities[rows], member.predict_proba(X[rows]))
        alone = make_pipeline(encoded(), trees(LGBMClassifier)).fit(X[~rows], y[~rows])
        np.testing.assert_array_equal(probabilities[rows], alone.predict_proba(X[rows]))


def test_groups_stay_together_and_time_comes_in_blocks() -> None:
    X = frame(400)
    y = labelled(X, "value")
    fit = windtunnel.CrossFittedRegressor(make_pipeline(encoded(), Ridge()), folds=4).fit
    fold = fit(X, y, groups=X["city"]).fold_
    assert (pd.Series(fold).groupby(X["city"]).nunique() == 1).all()
    order = fit(X, y, time=X["fee"].fillna(0)).fold_[np.argsort(X["fee"].fillna(0), kind="stable")]
    assert (np.diff(order) >= 0).all()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"folds": 1}, "folds=1 must be"),
        ({"groups": [1], "time": [1]}, "inconsistent numbers"),
        ({"groups": np.zeros(60), "time": np.zeros(60)}, "both given"),
        ({"groups": "city"}, "groups='city' is a text; give a value per row"),
        ({"time": np.append(np.zeros(59), np.nan)}, "time= has 1 missing values"),
    ],
)
def test_folds_that_cannot_be_made(options: dict[str, Any], why: str) -> None:
    X = frame(60)
    with pytest.raises((BadInput, ValueError), match=why):
        windtunnel.crossfit(unfitted(), X, labelled(X, "label"), **options)


@pytest.mark.parametrize("options", [{"joint": True}, {"recipe": "joint"}, {"recipe": "paper"}, {"residual": False}])
def test_members_themselves_are_not_trained(options: dict[str, Any]) -> None:
    X = frame(60)
    with pytest.raises(InvalidOption, match="a residual model on top of its members"):
        windtunnel.crossfit(make_pipeline(encoded(), Ridge()), X, labelled(X, "value"), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"checkpoint_di": "x"}, "checkpoint_di='x' is not an option"),
        ({"metric": "accurcy"}, "metric='accurcy' is not known; did you mean accuracy"),
        ({"loss": "softmx"}, "loss='softmx' is not known; .* did you mean softmax"),
    ],
)
def test_unknown_options_are_rejected_before_members_are_fitted(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        windtunnel.crossfit("no pipeline", [], [], **options)


def test_a_class_that_a_member_lacks() -> None:
    X = frame(60)
    y = np.array(["no"] * 59 + ["yes"])
    with pytest.raises(BadInput, match="every member needs rows of every class"):
        windtunnel.crossfit(unfitted(), X, y, folds=2)


def test_a_classifier_without_probabilities() -> None:
    X = frame(60)
    with pytest.raises(UnsupportedEstimator, match="RidgeClassifier has no predict_proba"):
        windtunnel.crossfit(make_pipeline(encoded(), RidgeClassifier()), X, labelled(X, "label"), folds=2)


@pytest.mark.parametrize("library", ["lightgbm", "lightgbm by a parameter", "xgboost", "catboost"])
def test_members_have_as_many_trees_as_a_source_that_stopped_early(library: str) -> None:
    X = frame(900)[NUMBERS].fillna(0)
    y = (X["age"] + np.random.default_rng(0).normal(0, 12, 900) > 40).astype(int)
    parts = (X[:600], y[:600]), (X[600:], y[600:])
    if library.startswith("lightgbm"):
        import lightgbm

        by_itself = library == "lightgbm by a parameter"
        stop = None if by_itself else [lightgbm.early_stopping(3, verbose=False)]
        rounds = {"early_stopping_round": 3} if by_itself else {}
        source: Any = LGBMClassifier(n_estimators=200, verbosity=-1, random_state=0, **rounds)
        source.fit(*parts[0], eval_X=parts[1][0], eval_y=parts[1][1], callbacks=stop)
        count = [source.best_iteration_, lambda one: one.n_estimators_]
    elif library == "xgboost":
        xgboost = pytest.importorskip("xgboost")
        source = xgboost.XGBClassifier(n_estimators=200, early_stopping_rounds=3)
        source.fit(*parts[0], eval_set=[parts[1]], verbose=False)
        count = [source.best_iteration + 1, lambda one: one.get_booster().num_boosted_rounds()]
    else:
        catboost = pytest.importorskip("catboost")
        source = catboost.CatBoostClassifier(
            iterations=200, early_stopping_rounds=3, verbose=False, allow_writing_files=False
        )
        source.fit(*parts[0], eval_set=parts[1])
        count = [source.tree_count_, lambda one: one.tree_count_]
    assert 0 < count[0] < 200
    members = windtunnel.CrossFittedClassifier(source, folds=2).fit(X, y).estimators_
    assert [count[1](one) for one in members] == [count[0]] * 2


def test_a_decision_threshold_goes_around_the_members() -> None:
    X, held = frame(400), frame(200, seed=5)
    y, z = labelled(X, "label"), labelled(held, "label", 5)
    source = FixedThresholdClassifier(unfitted(), threshold=0.3, pos_label="yes")
    with pytest.warns(UserWarning, match="whatever the threshold of FixedThresholdClassifier. Give crossfit"):
        net = windtunnel.crossfit(source, X, y, valid=(held, z), folds=2, **OPTIONS)
    around = FixedThresholdClassifier(FrozenEstimator(net), threshold=0.3, pos_label="yes").fit(X, y)
    wanted = np.where(net.predict_proba(held)[:, 1] >= 0.3, "yes", "no")
    np.testing.assert_array_equal(around.predict(held), wanted)
    assert (wanted != net.predict(held)).any()


def test_members_do_not_have_the_threshold_of_catboost() -> None:
    catboost = pytest.importorskip("catboost")
    X = frame(400)[NUMBERS].fillna(0)
    y = X["age"] > X["age"].median()
    source = catboost.CatBoostClassifier(iterations=5, verbose=False, allow_writing_files=False).fit(X, y)
    windtunnel.crossfit(source, X, y, folds=2, **OPTIONS)  # 0.5: no warning
    source.set_probability_threshold(0.3)
    with pytest.warns(UserWarning, match="whatever the threshold of CatBoostClassifier. Give crossfit"):
        windtunnel.crossfit(source, X, y, folds=2, **OPTIONS)


def test_a_fitted_pipeline_of_many_columns_is_compared_as_it_is():
    X, y = sparse.random(900, 1200, 0.01, "csr", random_state=0), np.arange(900) % 2
    pipeline = LogisticRegression(max_iter=500).fit(X[:600], y[:600])
    with pytest.warns(UserWarning, match="which is returned. Members miss a fold"):
        net = windtunnel.crossfit(pipeline, X[:600], y[:600], valid=(X[:600], y[:600]), folds=2, progress=False)
    np.testing.assert_array_equal(net.predict(X), pipeline.predict(X))


def ridge() -> Any:
    return make_pipeline(encoded(), Ridge())


def test_times_are_one_column_of_numbers_or_dates() -> None:
    X = frame()
    y, days = labelled(X, "value"), pd.date_range("2024-01-01", periods=len(X))
    members = [windtunnel.CrossFittedRegressor(ridge(), folds=3) for _ in range(2)]
    folds = [
        each.fit(X, y, time=time).fold_ for each, time in zip(members, (days, pd.DataFrame({"t": days})), strict=True)
    ]
    np.testing.assert_array_equal(*folds)
    assert np.unique(folds[0]).tolist() == [0, 1, 2]
    with pytest.raises(BadInput, match="time= holds texts such as '01.01.2024'"):
        windtunnel.crossfit(ridge(), X, y, time=days.strftime("%d.%m.%Y"))
    with pytest.raises(BadInput, match=r"groups= has the shape \(\d+, 2\)"):
        windtunnel.crossfit(ridge(), X, y, groups=np.zeros((len(X), 2)))


def test_latest_rows_of_weight_zero_do_not_validate() -> None:
    X = frame()
    weight = (np.arange(len(X)) < len(X) - 200).astype(float)
    options = {"weight": weight, **OPTIONS}
    net = windtunnel.crossfit(ridge(), X, labelled(X, "value"), folds=3, time=np.arange(len(X)), **options)
    assert net.history.validated_on == "out-of-fold rows"


def test_a_fitted_pipeline_over_wide_sparse_rows_is_compared_with_its_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windtunnel.trainers.data.loader.DENSE_BYTES_OF_FIT", 1 << 16)
    X = sparse.random(900, 1200, 0.01, random_state=0, format="csr")
    y = np.asarray(X[:, :300].sum(axis=1)).ravel() > 1.2
    source = LogisticRegression().fit(X[:600], y[:600])
    valid = X[600:], y[600:]
    with pytest.warns(UserWarning, match="the members .* are worse than the fitted pipeline"):
        net = windtunnel.crossfit(source, X[:600], y[:600], folds=2, valid=valid, **OPTIONS)
    assert net.predict(X[600:]).tolist() == source.predict(X[600:]).tolist()
