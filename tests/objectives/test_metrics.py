from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from lightgbm import LGBMClassifier
from sklearn import metrics as sk
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC

import windtunnel
from windtunnel.api.scores import measure
from windtunnel.errors import InvalidOption
from windtunnel.objectives.metrics import ALIASES, Metric
from windtunnel.objectives.weighted import WeightedMetric, r2
from windtunnel.program.head import Head

ROWS = 200
BINARY = Head("binary", "sigmoid", "logistic", classes=np.array(["no", "yes"]))
MULTI = Head("multiclass", "softmax", "softmax", classes=np.arange(3))
MARGIN = Head("binary", "identity", "hinge", classes=np.array(["no", "yes"]))
VALUE = Head("regression", "identity", "squared")
POISSON = Head("regression", "exp", "poisson")


def scored(head: Head, outputs: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores, many of them equal, targets, and weights of which a fifth are 0."""
    random = np.random.default_rng(seed)
    scores = random.normal(size=(ROWS, outputs)).round(1)
    classes = 0 if head.classes is None else len(head.classes)
    target = random.integers(0, classes, ROWS) if classes else scores + random.normal(size=(ROWS, outputs))
    weight = random.exponential(size=ROWS) * (random.random(ROWS) > 0.2)
    return torch.from_numpy(scores), torch.from_numpy(target), torch.from_numpy(weight)


def evaluated(metric: Metric, *items: torch.Tensor) -> float:
    for part in (slice(0, 70), slice(70, None)):
        metric.update(*(block[part] for block in items))
    return metric.compute()


def labels(p: Any) -> Any:
    return p.argmax(axis=1)


CLASSIFIERS: dict[str, Callable[..., float]] = {
    "log_loss": lambda y, p, **w: sk.log_loss(y, p, **w),
    "accuracy": lambda y, p, **w: sk.accuracy_score(y, labels(p), **w),
    "f1": lambda y, p, **w: sk.f1_score(y, labels(p), average="binary" if p.shape[1] == 2 else "macro", **w),
    "auroc": lambda y, p, **w: sk.roc_auc_score(y, p[:, 1] if p.shape[1] == 2 else p, multi_class="ovr", **w),
    "average_precision": lambda y, p, **w: sk.average_precision_score(y, p[:, 1] if p.shape[1] == 2 else p, **w),
}
VALUES: dict[str, Callable[..., float]] = {
    "rmse": sk.root_mean_squared_error,
    "mae": sk.mean_absolute_error,
    "r2": sk.r2_score,
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("head", [BINARY, MULTI], ids=["two", "three"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers(name: str, head: Head, weighted: bool) -> None:
    scores, target, weight = scored(head, 1 if head is BINARY else 3)
    options = {"sample_weight": weight.numpy()} if weighted else {}
    wanted = CLASSIFIERS[name](target.numpy(), head.linked(scores).numpy(), **options)
    items = (scores, target, weight)[: 3 if weighted else 2]
    assert evaluated(Metric(name, head), *items) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("name", VALUES)
def test_regressors(name: str, outputs: int, weighted: bool, offset: float) -> None:
    """Sums of squares of large values would cancel."""
    scores, target, weight = scored(VALUE, outputs)
    scores, target = scores + offset, target + offset
    options = {"sample_weight": weight.numpy()} if weighted else {}
    wanted = VALUES[name](target.numpy(), scores.numpy(), **options)
    items = (scores, target, weight)[: 3 if weighted else 2]
    assert evaluated(Metric(name, VALUE), *items) == pytest.approx(wanted, rel=1e-12 if offset == 0 else 1e-9)


@pytest.mark.parametrize(
    ("name", "head"), [*((name, MULTI) for name in CLASSIFIERS), *((name, VALUE) for name in VALUES)]
)
def test_rows_of_weight_0_are_ignored(name: str, head: Head) -> None:
    """Not even where they hold no number, or the only rows of a class."""
    scores, target, weight = scored(head, 3 if head is MULTI else 1)
    weight = weight if head is VALUE else torch.where(target == 2, 0.0, weight)
    scores[weight == 0] = math.nan
    counted = weight > 0
    assert evaluated(Metric(name, head), scores, target, weight) == pytest.approx(
        evaluated(Metric(name, head), *(one[counted] for one in (scores, target, weight))), rel=1e-12
    )


@pytest.mark.parametrize("name", ["auroc", "average_precision"])
def test_classes_without_rows_are_left_out_of_a_ranking(name: str) -> None:
    scores, target, _ = scored(MULTI, 3)
    target = target.clamp_max(1)
    share, one = MULTI.linked(scores).numpy(), CLASSIFIERS[name]
    pairs = [one((target == k).numpy(), np.stack([1 - share[:, k], share[:, k]], axis=1)) for k in (0, 1)]
    assert evaluated(Metric(name, MULTI), scores, target) == pytest.approx(np.mean(pairs), rel=1e-12)


def test_classes_that_do_not_occur_are_left_out_of_f1() -> None:
    scores, target, _ = scored(MULTI, 3)
    scores[:, 2], target = -9.0, target.clamp_max(1)
    wanted = sk.f1_score(target.numpy(), labels(scores.numpy()), average="macro")
    assert evaluated(Metric("f1", MULTI), scores, target) == pytest.approx(wanted, rel=1e-12)
    never = torch.zeros(ROWS, dtype=torch.int64)
    assert evaluated(Metric("f1", BINARY), -scores[:, :1].abs() - 1, never) == 0


@pytest.mark.parametrize("right", [True, False])
def test_r2_of_equal_targets(right: bool) -> None:
    target = torch.full((ROWS,), 0.1)
    value = target.double() + (0.0 if right else 1.0)
    wanted = sk.r2_score(target.numpy(), value.numpy())
    assert evaluated(Metric("r2", VALUE), value.unsqueeze(1), target) == wanted == float(right)


def test_undefined_metrics_are_nan() -> None:
    never = torch.zeros(ROWS, dtype=torch.int64)
    for name in ("auroc", "average_precision"):
        assert math.isnan(evaluated(Metric(name, BINARY), torch.randn(ROWS, 1), never))
    assert math.isnan(evaluated(Metric("auroc", MULTI), torch.randn(ROWS, 3), never))
    metric = Metric("r2", VALUE)
    metric.update(torch.randn(1, 1), torch.ones(1))
    assert math.isnan(metric.compute())


def test_equal_in_float32_is_not_better() -> None:
    metric = Metric("accuracy", BINARY)
    assert not metric.better(float(np.float32(0.7)), 0.7) and not metric.better(0.7, float(np.float32(0.7)))
    assert metric.better(0.7001, 0.7) and not metric.better(math.nan, 0.7) and not metric.better(0.7, math.nan)


def rows(count: int = 400, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    X = random.normal(size=(count, 3)).astype(np.float32)
    s = X[:, 0] + X[:, 1] ** 2 - 1 + random.normal(size=count)
    return X, np.digitize(s, [0.3] if classes == 2 else [-0.7, 0.7])


@pytest.mark.parametrize("name", [name for name in ALIASES if name != "auc"] + ["average_precision", "f1", "accuracy"])
def test_scikit_learn_names_are_its_scorers(name: str) -> None:
    X, y = rows(classes=2)
    weight = np.random.default_rng(1).exponential(size=len(y))
    source: Any = LinearRegression() if name.endswith("_error") else LogisticRegression()
    net = windtunnel.compile(source.fit(X, y))
    metric = Metric(name, net.head)
    target = net.head.encode_target(y)
    wanted = sk.get_scorer(name)(source, X, y, sample_weight=weight)
    found = evaluated(metric, net.scores(X), target, torch.from_numpy(weight))
    assert (found if metric.greater_is_better else -found) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "head", "message"),
    [
        ("gini_of_nothing", BINARY, "metric='gini_of_nothing' is not known; choose from auroc"),
        ("accuracy_score", BINARY, "metric='accuracy_score' is not known; did you mean accuracy"),
        ("aucroc", BINARY, "metric='aucroc' is not known; did you mean auroc"),
        ("rmse", BINARY, "does not fit a binary model"),
        ("log_loss", MARGIN, "does not fit a binary model with the link 'identity'; choose from auroc, average_"),
    ],
)
def test_unknown_and_unfit_names_are_rejected(name: str, head: Head, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        Metric(name, head)


@pytest.mark.parametrize("stretch", [1.0, 40.0])
@pytest.mark.parametrize("head", [BINARY, replace(BINARY, methods=("predict_proba", "decision_function")), MARGIN])
def test_auroc_of_saturated_probabilities(head: Head, stretch: float) -> None:
    """Scores of 100 saturate probabilities, and tie only where the source has no decisions."""
    scores, target, _ = scored(head, 1)
    scores = scores.float() * stretch
    ranks = scores[:, 0] if head is not BINARY else head.probabilities(scores)[:, 1]
    wanted = sk.roc_auc_score(target, ranks.numpy())
    assert evaluated(Metric(None, head), scores, target) == pytest.approx(wanted, rel=1e-12)


def test_regression_metrics_apply_the_link() -> None:
    scores, target, _ = scored(VALUE, 1)
    wanted = sk.root_mean_squared_error(target, scores.exp())
    assert evaluated(Metric("rmse", POISSON), scores, target[:, 0]) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(
    ("head", "name", "greater"),
    [
        (BINARY, "auroc", True),
        (MARGIN, "auroc", True),
        (MULTI, "log_loss", False),
        (Head("multiclass", "identity", "hinge", classes=np.arange(3)), "accuracy", True),
        (Head("regression"), "rmse", False),
        (POISSON, "loss", False),
    ],
)
def test_the_default_metric_of_a_task(head: Head, name: str, greater: bool) -> None:
    metric = Metric(None, head)
    assert (metric.name, metric.greater_is_better) == (name, greater)
    assert metric.better(1.0, 0.0) is greater
    assert not metric.better(1.0, 1.0)
    assert not metric.better(math.nan, 0.0)


THRESHOLD = FixedThresholdClassifier(LogisticRegression(C=0.003), threshold=0.3)


@pytest.mark.parametrize(
    ("source", "classes", "metric", "oracle"),
    [
        (SVC(), 3, None, lambda net, X, y: sk.accuracy_score(y, net.predict(X))),
        (SVC(), 3, "f1", lambda net, X, y: sk.f1_score(y, net.predict(X), average="macro")),
        (THRESHOLD, 2, "accuracy", lambda net, X, y: sk.accuracy_score(y, net.predict(X))),
        (THRESHOLD, 2, "f1", lambda net, X, y: sk.f1_score(y, net.predict(X))),
        (THRESHOLD, 2, "auroc", lambda net, X, y: sk.roc_auc_score(y, net.decision_function(X))),
        (
            OneVsRestClassifier(LogisticRegression()),
            3,
            None,
            lambda net, X, y: -np.log(net.predict_proba(X)[np.arange(len(y)), y]).mean(),
        ),
        (
            OneVsRestClassifier(LogisticRegression()),
            3,
            "auroc",
            lambda net, X, y: sk.roc_auc_score(y, net.predict_proba(X), multi_class="ovr"),
        ),
    ],
)
def test_metrics_compare_the_predictions_of_methods(
    source: Any, classes: int, metric: str | None, oracle: Callable[..., float]
) -> None:
    X, y = rows(classes=classes)
    fitted = source.fit(X[:150], y[:150])
    net = windtunnel.translate(fitted)
    net.fit((X[:150], y[:150]), (X[150:], y[150:]), metric=metric, epochs=2, progress=False, accelerator="cpu")
    assert net.history.start == pytest.approx(oracle(fitted, X[150:], y[150:]), abs=1e-6)
    assert net.history.best == pytest.approx(oracle(net, X[150:], y[150:]), abs=1e-6)


def test_pairwise_scores_are_ranked_by_the_decision_function_only() -> None:
    X, y = rows()
    options: dict[str, Any] = {"metric": "auroc", "epochs": 1, "progress": False, "accelerator": "cpu"}
    source = SVC(decision_function_shape="ovr").fit(X[:150], y[:150])
    net = windtunnel.translate(source).fit((X[:150], y[:150]), (X[150:], y[150:]), **options)
    decided = source.decision_function(X[150:])
    wanted = np.mean([sk.roc_auc_score(y[150:] == k, decided[:, k]) for k in range(3)])
    assert net.history.start == pytest.approx(wanted, abs=1e-6)
    pairs = SVC(decision_function_shape="ovo").fit(X[:150], y[:150])
    with pytest.raises(InvalidOption, match="choose from accuracy, f1, loss"):
        windtunnel.translate(pairs).fit((X[:150], y[:150]), (X[150:], y[150:]), **options)


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("metric", ["auroc", "log_loss", "loss"])
def test_epochs_are_evaluated_with_the_weights_of_the_validation_rows(metric: str, residual: bool) -> None:
    """Rows of weight 0 hold the wrong labels."""
    X, y = rows(1200, classes=2)
    wrong = np.random.default_rng(2).random(len(y)) < 0.4
    y, weight = np.where(wrong, 1 - y, y), np.where(wrong, 0.0, np.random.default_rng(3).exponential(size=len(y)))
    train, valid = slice(0, 500), slice(500, None)
    source = LogisticRegression(C=1e-2).fit(X[:30], y[:30])

    def worth(model: Any) -> float:
        share, options = model.predict_proba(X[valid]), {"sample_weight": weight[valid]}
        return CLASSIFIERS["auroc" if metric == "auroc" else "log_loss"](y[valid], share, **options)

    net = windtunnel.translate(source)
    parts = [(X[part], y[part], weight[part]) for part in (train, valid)]
    net.fit(*parts, metric=metric, residual=residual, epochs=20, progress=False, accelerator="cpu")
    assert net.history.start == pytest.approx(worth(source), rel=1e-5)
    assert net.history.best == pytest.approx(worth(net), rel=1e-5)
    assert worth(net) != worth(source)


@pytest.mark.parametrize("metric", ["log_loss", "accuracy", "loss"])
def test_an_unchanged_forest_has_its_own_metric(metric: str) -> None:
    """One row that counts is too few for a residual model, and no weight of the forest may move."""
    X, y = rows()
    source = RandomForestClassifier(n_estimators=5, max_depth=3, random_state=0).fit(X[:200], y[:200])
    net = windtunnel.compile(source)
    net.requires_grad_(False)
    valid = X[200:], y[200:], (np.arange(200) == 7).astype(float)
    net.fit((X[:200], y[:200]), valid, metric=metric, progress=False, accelerator="cpu")
    assert len(net.history.epochs) == 1
    share = source.predict_proba(X[207:208])[0]
    wanted = float(share.argmax() == y[207]) if metric == "accuracy" else -np.log(share[y[207]])
    assert net.history.start == net.history.best == pytest.approx(wanted, rel=1e-5)


def test_targets_of_weight_0_may_be_anything() -> None:
    random = np.random.default_rng(0)
    X, weight = random.normal(size=(1600, 2)), (random.random(1600) > 0.3).astype(float)
    y = np.where(weight > 0, X[:, 0] + X[:, 1] ** 2 + 0.5 * random.normal(size=1600), 1e6)
    train, valid = slice(0, 800), slice(800, None)
    source = LinearRegression().fit(X[train], y[train], sample_weight=weight[train])
    net = windtunnel.translate(source)
    net.fit(*((X[part], y[part], weight[part]) for part in (train, valid)), progress=False, accelerator="cpu")
    before, after = (
        sk.root_mean_squared_error(y[valid], model.predict(X[valid]), sample_weight=weight[valid])
        for model in (source, net)
    )
    assert after < 0.6 * before
    assert (net.history.start, net.history.best) == pytest.approx((before, after), rel=1e-5)


def test_r2_of_targets_far_from_0_in_batches_and_after_gathering() -> None:
    values, target, weight = scored(VALUE, 2)
    values, target, weight = values + 1e7, target + 1e7, weight + 0.1
    wanted = sk.r2_score(target, values, sample_weight=weight)
    gathered = WeightedMetric(r2)
    gathered.update(values[:70], target[:70], weight[:70])
    # What gathering leaves: one tensor per state.
    gathered.values, gathered.targets, gathered.weights = values, target, weight  # type: ignore[assignment]
    assert float(gathered.compute()) == pytest.approx(wanted, rel=1e-8)
    assert evaluated(Metric("r2", VALUE), values, target, weight) == pytest.approx(wanted, rel=1e-8)


def test_scores_that_are_not_finite_make_every_metric_nan() -> None:
    for head, name in [*((MULTI, name) for name in CLASSIFIERS), *((VALUE, name) for name in VALUES)]:
        for bad in (math.nan, math.inf):
            scores, target, _ = scored(head, 1 if head is VALUE else 3)
            scores[5, 0] = bad
            assert math.isnan(evaluated(Metric(name, head), scores, target))


@pytest.mark.parametrize("classes", [2, 3])
def test_models_that_predict_labels_only_have_accuracy(classes: int) -> None:
    X, y = rows(classes=classes)
    members = [(str(C), LogisticRegression(C=C)) for C in (0.01, 0.1, 1.0)]
    source = VotingClassifier(members, voting="hard").fit(X[:150], y[:150])
    net = windtunnel.translate(source)
    net.fit((X[:150], y[:150]), (X[150:], y[150:]), epochs=2, progress=False, accelerator="cpu")
    assert net.history is not None and net.history.metric == "accuracy"
    assert net.history.best == pytest.approx(sk.accuracy_score(y[150:], net.predict(X[150:])), rel=1e-6)
    right = sk.accuracy_score(y[150:], source.predict(X[150:]))
    assert net.history.best >= right - 1e-6
    assert measure(source, X[150:], y[150:], head=net.head) == {"accuracy": right}  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:The y_prob values do not sum to one")
def test_log_loss_of_probabilities_that_do_not_sum_to_one() -> None:
    X, y = rows()
    source = LGBMClassifier(n_estimators=5, objective="multiclassova", verbosity=-1, n_jobs=1).fit(X[:150], y[:150])
    net = windtunnel.translate(source)
    assert np.abs(net.predict_proba(X).sum(axis=1) - 1).max() > 0.01
    came = sk.log_loss(y[150:], net.predict_proba(X[150:]))
    net.fit((X[:150], y[:150]), (X[150:], y[150:]), epochs=2, progress=False, accelerator="cpu")
    assert net.history is not None and net.history.metric == "log_loss"
    assert net.history.start == pytest.approx(came, rel=1e-6)
    assert net.history.best == pytest.approx(sk.log_loss(y[150:], net.predict_proba(X[150:])), rel=1e-6)


@pytest.mark.parametrize("outputs", [1, 2])
def test_targets_that_float32_rounds_are_reported(outputs: int) -> None:
    head = Head("regression", flat=outputs == 1)
    y = np.random.default_rng(0).normal(size=(ROWS, outputs))
    for spread in (1e6, 1e8):
        head.encode_target(1.7e9 + spread * y)
    head.encode_target(np.full((ROWS, outputs), 0.1))
    with pytest.warns(UserWarning, match=r"up to 2e\+09 are rounded to float32, which loses a part of their variance"):
        head.encode_target(1.7e9 + y)
