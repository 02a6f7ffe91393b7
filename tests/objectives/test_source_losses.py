"""Fine-tuning minimises what the source was fitted with, by the source's own metrics or scikit-learn's."""

from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
import torch
from catboost import CatBoost, CatBoostRegressor, Pool
from lightgbm import LGBMRegressor
from sklearn import metrics as sk
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import AdaBoostRegressor, BaggingRegressor, VotingRegressor
from sklearn.linear_model import (
    GammaRegressor,
    HuberRegressor,
    LinearRegression,
    PoissonRegressor,
    QuantileRegressor,
    TweedieRegressor,
)
from sklearn.multioutput import MultiOutputRegressor, RegressorChain
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer, QuantileTransformer, StandardScaler
from sklearn.tree import DecisionTreeRegressor
from xgboost import XGBRegressor

import windtunnel
from windtunnel.api.crossfit import _raw_scores, _validation_losses
from windtunnel.errors import BadInput, InvalidOption
from windtunnel.objectives.losses import loss_for
from windtunnel.trainers.recipe import Recipe

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(120, 3))
Y = np.exp(X[:, 0] + 0.5 * DRAW.normal(size=len(X))).astype(np.float32).astype(np.float64)
TIMES = np.where(X[:, 1] > 0.5, -Y, Y)
JOINT: dict[str, Any] = {"recipe": "joint", "epochs": 1, "progress": False}
QUANTILE = {"n_estimators": 8, "objective": "quantile", "alpha": 0.8, "verbosity": -1, "num_leaves": 6}


def own_loss(fitted: Any, y: np.ndarray, asked: str | None = None) -> float:
    """The loss of what a source gives, as fine-tuning computes it."""
    net = windtunnel.compile(fitted)
    return float(loss_for(asked, net.head)(net.scores(net.encode(X)), net.head.encode_target(y), None))


def pinball(y: np.ndarray, outputs: np.ndarray, alpha: float = 0.8) -> float:
    return float(sk.mean_pinball_loss(y, outputs, alpha=alpha))


@pytest.mark.parametrize(
    ("objective", "metric"),
    [("regression", "l2"), ("mae", "l1"), ("quantile", "quantile"), ("fair", "fair"), ("mape", "mape")],
)
def test_reg_sqrt_is_tuned_on_the_output_of_predict(objective: str, metric: str) -> None:
    options = {"objective": objective, "metric": metric, "reg_sqrt": True, "alpha": 0.7, "verbosity": -1}
    rows = lgb.Dataset(X, Y)
    found: dict[str, Any] = {}
    fitted = lgb.train(options, rows, 8, valid_sets=[rows], callbacks=[lgb.record_evaluation(found)])
    assert own_loss(fitted, Y) == pytest.approx(found["training"][metric][-1], rel=1e-5)


def test_tuning_reg_sqrt_keeps_the_metric_of_the_source() -> None:
    fitted = LGBMRegressor(n_estimators=8, objective="mae", reg_sqrt=True, verbosity=-1).fit(X, Y)
    net = windtunnel.translate(fitted, calibrate=X).soften()
    before = sk.mean_absolute_error(Y, net.predict(X))
    net.fit((X, Y), (X, Y), **JOINT)
    assert net.history.start == pytest.approx(before, rel=1e-5)
    after = sk.mean_absolute_error(Y, net.predict(X))
    assert net.history.best == pytest.approx(after, rel=1e-5)
    assert after <= before * (1 + 1e-6)


@pytest.mark.parametrize(
    ("objective", "metric", "power", "options"),
    [
        ("reg:squaredlogerror", "rmsle", 2, {}),
        ("reg:pseudohubererror", "mphe", 1, {"huber_slope": 0.5}),
        ("reg:absoluteerror", "mae", 1, {}),
        ("reg:quantileerror", "quantile", 1, {"quantile_alpha": 0.8}),
        ("reg:quantileerror", "quantile", 1, {"quantile_alpha": [0.2, 0.5, 0.9]}),
    ],
)
def test_xgboost_is_tuned_on_its_own_metric(objective: str, metric: str, power: int, options: dict[str, Any]) -> None:
    fitted = XGBRegressor(n_estimators=8, objective=objective, eval_metric=metric, **options)
    fitted.fit(X, Y, eval_set=[(X, Y)], verbose=False)
    theirs = fitted.evals_result()["validation_0"][metric][-1]
    assert own_loss(fitted, Y) == pytest.approx(theirs**power, rel=1e-5)


@pytest.mark.parametrize("family", [CatBoostRegressor, lambda **options: CatBoost(options)])
@pytest.mark.parametrize(
    "loss",
    ["MAE", "Quantile:alpha=0.8", "Expectile:alpha=0.8", "Lq:q=3", "LogCosh", "Huber:delta=0.5", "MAPE"],
)
def test_catboost_is_tuned_on_its_own_metric(family: Any, loss: str) -> None:
    fitted = family(loss_function=loss, iterations=8, verbose=0, allow_writing_files=False, thread_count=1).fit(X, Y)
    [theirs] = fitted.eval_metrics(Pool(X, Y), [loss], ntree_start=0).values()
    # Its metric takes a fast logarithm for this one, which is off by up to 1e-4.
    assert own_loss(fitted, Y) == pytest.approx(theirs[-1], rel=1e-5, abs=1e-4 if loss == "LogCosh" else 0)


def crossfitted(model: Any) -> Any:
    return windtunnel.CrossFittedRegressor(model, folds=2)


def vote(first: Any, second: Any, weights: list[float] | None = None) -> VotingRegressor:
    return VotingRegressor([("first", first), ("second", second)], weights=weights)


def linear(alpha: float = 0.8) -> QuantileRegressor:
    return QuantileRegressor(quantile=alpha, alpha=0)


SHARED = {
    "cross-fitted": lambda: crossfitted(LGBMRegressor(**QUANTILE)),
    "vote": lambda: vote(LGBMRegressor(**QUANTILE), linear(), [2, 1]),
    "bagging": lambda: BaggingRegressor(linear(), 3, random_state=0),
    "boosted": lambda: AdaBoostRegressor(linear(), n_estimators=3, random_state=0),
    "nested": lambda: vote(BaggingRegressor(linear(), 2, random_state=0), crossfitted(linear())),
    "of the logarithm": lambda: TransformedTargetRegressor(linear(), func=np.log, inverse_func=np.exp),
    "of the root": lambda: TransformedTargetRegressor(LGBMRegressor(**QUANTILE), func=np.sqrt, inverse_func=np.square),
    "of the scaled": lambda: TransformedTargetRegressor(linear(), transformer=StandardScaler()),
    "of the power": lambda: TransformedTargetRegressor(LGBMRegressor(**QUANTILE), transformer=PowerTransformer()),
    "of the rank": lambda: TransformedTargetRegressor(linear(), transformer=QuantileTransformer(n_quantiles=20)),
}


@pytest.mark.parametrize("name", SHARED)
def test_composites_of_quantile_regressors_are_tuned_on_their_quantile(name: str) -> None:
    fitted = SHARED[name]().fit(X, Y)
    assert own_loss(fitted, Y) == pytest.approx(pinball(Y, fitted.predict(X)), rel=1e-5)


@pytest.mark.parametrize("family", [MultiOutputRegressor, RegressorChain])
def test_several_targets_are_tuned_on_the_loss_of_their_regressor(family: Any) -> None:
    targets = np.stack([Y, TIMES], axis=1)
    fitted = family(linear()).fit(X, targets)
    assert own_loss(fitted, targets) == pytest.approx(pinball(targets, fitted.predict(X)), rel=1e-5)


@pytest.mark.parametrize("family", [BaggingRegressor, AdaBoostRegressor])
def test_ensembles_of_trees_of_absolute_errors(family: Any) -> None:
    tree = DecisionTreeRegressor(criterion="absolute_error", max_depth=3, random_state=0)
    fitted = family(tree, n_estimators=3, random_state=0).fit(X, Y)
    assert own_loss(fitted, Y) == pytest.approx(sk.mean_absolute_error(Y, fitted.predict(X)), rel=1e-5)


DEVIANCES = {
    "poisson": (PoissonRegressor, 1.0),
    "gamma": (GammaRegressor, 2.0),
    "tweedie": (lambda **options: TweedieRegressor(power=1.5, **options), 1.5),
}


@pytest.mark.parametrize("name", DEVIANCES)
def test_positive_predictions_are_tuned_on_their_deviance_and_stay_positive(name: str) -> None:
    family, power = DEVIANCES[name]
    models = [
        vote(family(alpha=0), family(alpha=10)),
        BaggingRegressor(family(), 2, random_state=0),
        crossfitted(family()),
    ]
    models = [one.fit(X, Y) for one in models]
    ours = [own_loss(one, Y) for one in models]
    theirs = [sk.mean_tweedie_deviance(Y, one.predict(X), power=power) / 2 for one in models]
    # Half the deviance, up to a constant of the targets.
    np.testing.assert_allclose(np.diff(ours), np.diff(theirs), rtol=1e-4)
    for one in models:
        net = windtunnel.compile(one)
        assert net.head.link == "exp"
        np.testing.assert_allclose(net.predict(X), one.predict(X), rtol=1e-9)


def test_the_mean_of_probabilities_is_tuned_on_their_log_loss() -> None:
    shares = 1 / (1 + np.exp(-X[:, 0]))
    boosters = [XGBRegressor(n_estimators=5, objective="reg:logistic", max_depth=depth) for depth in (1, 2)]
    fitted = vote(*boosters).fit(X, shares)
    outputs = fitted.predict(X).astype(np.float64)
    wanted = -np.mean(shares * np.log(outputs) + (1 - shares) * np.log(1 - outputs))
    assert own_loss(fitted, shares) == pytest.approx(wanted, rel=1e-5)


def test_cross_fitting_a_poisson_model_learns_from_logarithms() -> None:
    net = windtunnel.crossfit(PoissonRegressor(), X, Y, valid=(X, Y), folds=2, epochs=2, progress=False)
    assert net.head.link == "exp"
    outputs = np.array([0.5, 2.0, 7.0])
    np.testing.assert_allclose(net.head.linked(_raw_scores(net.head, outputs))[:, 0].numpy(), outputs, rtol=1e-12)
    assert torch.isfinite(_raw_scores(net.head, np.zeros(1))).all()


@pytest.mark.parametrize(
    ("family", "options"),
    [
        (LGBMRegressor, {"objective": "mae", "reg_sqrt": True, "verbosity": -1}),
        (XGBRegressor, {"objective": "reg:logistic"}),
    ],
    ids=["reg_sqrt", "shares"],
)
def test_members_are_compared_with_a_source_of_another_link(family: Any, options: dict[str, Any]) -> None:
    """Members that predict what the source predicts are exactly as good."""
    y = Y / (1 + Y)
    source = family(n_estimators=8, **options).fit(X, y)
    members = crossfitted(source).fit(X, y)
    members.estimators_ = [source, source]
    ours, theirs = _validation_losses(windtunnel.compile(members), windtunnel.compile(source), Recipe(), (X, y))
    assert float(theirs.mean) == pytest.approx(own_loss(source, y), rel=1e-5)
    torch.testing.assert_close(ours.loss, theirs.loss, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        vote(linear(0.8), linear(0.2)),
        vote(linear(), LinearRegression()),
        vote(PoissonRegressor(), GammaRegressor()),
        vote(PoissonRegressor(alpha=0), PoissonRegressor(), [2, -1]),
        TransformedTargetRegressor(linear(), func=np.negative, inverse_func=np.negative),
        TransformedTargetRegressor(PoissonRegressor(), func=np.sqrt, inverse_func=np.square),
        TransformedTargetRegressor(HuberRegressor(), func=np.log, inverse_func=np.exp),
    ],
    ids=str,
)
def test_parts_without_a_common_loss_get_squared_errors(model: Any) -> None:
    fitted = model.fit(X, Y)
    assert own_loss(fitted, Y) == pytest.approx(sk.mean_squared_error(Y, fitted.predict(X)), rel=1e-5)


@pytest.mark.parametrize(("function", "inverse", "link"), [(np.log, np.exp, "exp"), (np.log1p, np.expm1, "expm1")])
def test_a_regressor_of_logarithms_is_tuned_on_them(function: Any, inverse: Any, link: str) -> None:
    regressor = make_pipeline(StandardScaler(), LGBMRegressor(n_estimators=8, min_child_samples=5, verbosity=-1))
    fitted = TransformedTargetRegressor(regressor, func=function, inverse_func=inverse).fit(X, Y)
    net = windtunnel.compile(fitted)
    assert (net.head.link, net.head.loss) == (link, "log_squared")
    np.testing.assert_allclose(net.predict(X), fitted.predict(X), rtol=1e-12)
    np.testing.assert_allclose(net.scores(X)[:, 0], fitted.regressor_.predict(X), rtol=1e-12)
    assert own_loss(fitted, Y) == pytest.approx(
        sk.mean_squared_error(function(Y), fitted.regressor_.predict(X)), rel=1e-5
    )
    for composite in (crossfitted(fitted), vote(fitted, clone(fitted)), BaggingRegressor(fitted, 2, random_state=0)):
        outer = composite.fit(X, Y)
        np.testing.assert_allclose(windtunnel.compile(outer).predict(X), outer.predict(X), rtol=1e-10)
        assert windtunnel.compile(outer).head.link == link


def test_what_is_tuned_of_a_regressor_of_logarithms_stays_positive() -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(3000, 3)).round(1)
    target = np.exp(rows[:, 0] + (rows[:, 1] * rows[:, 2] > 0) + 0.5 * random.normal(size=len(rows)))
    train, valid = ((rows[part], target[part]) for part in (slice(0, 2000), slice(2000, 3000)))
    source = TransformedTargetRegressor(LinearRegression(), func=np.log, inverse_func=np.exp).fit(*train)
    net = windtunnel.translate(source).fit(train, valid, epochs=1, progress=False, accelerator="cpu")
    assert net.history is not None and net.history.metric == "rmse" and net.history.best < net.history.start
    before, after = (sk.mean_squared_log_error(valid[1], model.predict(valid[0])) for model in (source, net))
    assert after < 0.8 * before and net.head.link == "exp"


def test_losses_of_means_are_not_for_logarithms_of_1_plus_the_target() -> None:
    fitted = TransformedTargetRegressor(LinearRegression(), func=np.log1p, inverse_func=np.expm1).fit(X, Y)
    with pytest.raises(InvalidOption, match="loss='poisson' takes scores as logarithms of a mean"):
        own_loss(fitted, Y, "poisson")


def test_members_with_different_deltas_get_their_mean() -> None:
    fitted = crossfitted(HuberRegressor()).fit(X, Y)
    deltas = [one.epsilon * one.scale_ for one in fitted.estimators_]
    head = windtunnel.compile(fitted).head
    assert (head.loss, head.loss_options) == ("huber", {"delta": pytest.approx(np.mean(deltas), rel=1e-12)})


def test_a_named_loss_is_of_the_output_of_predict() -> None:
    fitted = PoissonRegressor().fit(X, Y)
    assert own_loss(fitted, Y, "squared") == pytest.approx(sk.mean_squared_error(Y, fitted.predict(X)), rel=1e-5)
    with pytest.raises(
        InvalidOption, match=r"loss='gamma' takes scores as logarithms of a mean, .* \(link 'identity'\)"
    ):
        windtunnel.translate(LinearRegression().fit(X, Y)).fit((X, Y), loss="gamma", **JOINT)


def test_several_quantiles_at_once(tmp_path: Path) -> None:
    levels = [0.1, 0.9]
    fitted = XGBRegressor(n_estimators=8, objective="reg:quantileerror", quantile_alpha=levels).fit(X, Y)
    net = windtunnel.translate(fitted, calibrate=X)
    net.fit((X, Y), (X, Y), **JOINT)

    def error_of(predictions: np.ndarray) -> float:
        return float(np.mean([pinball(Y, predictions[:, at], level) for at, level in enumerate(levels)]))

    assert net.history.best == pytest.approx(error_of(net.predict(X)), rel=1e-5)
    net.save(tmp_path / "model.windtunnel")
    again = windtunnel.load(tmp_path / "model.windtunnel")
    assert again.head.loss_options == {"alpha": levels}
    # One target for each quantile is taken as well, encoded or not.
    twice, rows = np.stack([Y, Y], axis=1), again.encode(X)
    for X_, y in ((X, twice), (rows, torch.from_numpy(Y)), (rows, torch.from_numpy(twice))):
        again.fit((X_, y), (X, Y), **JOINT)
        assert again.history.start == pytest.approx(net.history.best, rel=1e-5)


def concordant(scores: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    earlier = (target > 0) & (target < target.abs().unsqueeze(1))
    return (torch.nn.functional.softplus(scores - scores[:, 0]) * earlier).mean()


def test_survival_models_need_a_custom_loss() -> None:
    fitted = XGBRegressor(n_estimators=8, objective="survival:cox").fit(X, TIMES)
    np.testing.assert_allclose(windtunnel.compile(fitted).predict(X), fitted.predict(X), rtol=1e-5)
    net = windtunnel.translate(fitted, calibrate=X)
    for options in (JOINT, {"progress": False}):
        with pytest.raises(BadInput, match=r"fit does not know the loss of this source: .*survival:cox"):
            net.fit((X, TIMES), (X, TIMES), **options)
    with pytest.raises(BadInput, match="fit does not know the loss"):
        windtunnel.crossfit(fitted, X, TIMES, folds=2, progress=False)
    assert np.isnan(net.harden((X, TIMES)).hardening.loss_after)
    net.fit((X, TIMES), (X, TIMES), loss=concordant, **JOINT)
    assert net.history.best <= net.history.start


def test_unknown_objectives_do_not_become_squared_errors() -> None:
    options = {"loss_function": "LogLinQuantile:alpha=0.8", "iterations": 5, "allow_writing_files": False, "verbose": 0}
    net = windtunnel.translate(CatBoost(options).fit(X, Y), calibrate=X)
    with pytest.raises(BadInput, match="fit does not know the loss"):
        net.fit((X, Y), **JOINT)
    with pytest.raises(InvalidOption, match="loss='unknown' is not known"):
        windtunnel.translate(LinearRegression().fit(X, Y)).fit((X, Y), loss="unknown", **JOINT)


def test_a_perceptron_of_several_targets_is_tuned() -> None:
    targets = np.stack([Y, TIMES], axis=1)
    fitted = MLPRegressor(hidden_layer_sizes=(4,), solver="lbfgs", max_iter=3, tol=1e9, random_state=0).fit(X, targets)
    net = windtunnel.translate(fitted)
    net.fit((X, targets), (X, targets), **JOINT)
    assert net.history.start == pytest.approx(sk.root_mean_squared_error(targets, fitted.predict(X)), rel=1e-5)
    assert net.predict(X).shape == targets.shape


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        (GammaRegressor(), 0.0),
        (PoissonRegressor(), -1.0),
        (TweedieRegressor(power=1.5), -1.0),
        (TweedieRegressor(power=3), 0.0),
        (LGBMRegressor(objective="gamma", n_estimators=4, verbosity=-1), 0.0),
        (LGBMRegressor(objective="poisson", n_estimators=4, verbosity=-1), -1.0),
        (LGBMRegressor(objective="cross_entropy", n_estimators=4, verbosity=-1), 50.0),
        (XGBRegressor(objective="reg:gamma", n_estimators=4), -1.0),
        (XGBRegressor(objective="reg:logistic", n_estimators=4), 50.0),
        (XGBRegressor(objective="reg:squaredlogerror", n_estimators=4), -2.0),
    ],
    ids=lambda value: str(getattr(value, "objective", None) or type(value).__name__),
)
def test_targets_that_the_source_rejects_are_rejected(source: Any, wrong: float) -> None:
    right = Y / (1 + Y)
    fitted = clone(source).fit(X, right)
    some_wrong = np.where(X[:, 1] > 1, wrong, right)
    with pytest.raises(Exception, match=r"label|range|y must|valid|tolerate"):
        clone(source).fit(X, some_wrong)
    for train, valid in ((right, some_wrong), (some_wrong, right)):
        net = windtunnel.translate(fitted)
        with pytest.raises(BadInput, match="takes targets"):
            net.fit((X, train), (X, valid), progress=False)
        np.testing.assert_allclose(net.predict(X), fitted.predict(X), rtol=1e-5)
