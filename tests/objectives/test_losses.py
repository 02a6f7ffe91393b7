"""Losses and metrics against torch and scikit-learn."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as sk
from sklearn.linear_model import _sgd_fast
from torch.nn import functional

from windtunnel.errors import BadInput, InvalidOption
from windtunnel.objectives.losses import LOSSES, loss_for
from windtunnel.program.head import Head

ROWS = 40


def _random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def _scores(columns: int, seed: int = 0) -> torch.Tensor:
    # Beyond the margins of hinge (1), modified Huber (-1) and Huber (delta) on both sides.
    return torch.from_numpy(_random(seed).normal(scale=2.0, size=(ROWS, columns)))


def _signs(indices: np.ndarray, columns: int) -> np.ndarray:
    hot = indices[:, None] == (np.array([1]) if columns == 1 else np.arange(columns))
    return np.where(hot, 1.0, -1.0)


def _sgd(loss: object) -> object:
    """The reference that scikit-learn's own SGD minimises, element by element."""
    return np.vectorize(lambda target, score: loss.py_loss(float(score), float(target)))  # type: ignore[attr-defined]


def _pinball(alpha: float) -> object:
    return np.vectorize(lambda y, s: sk.mean_pinball_loss([y], [s], alpha=alpha))


MARGINS = {
    "logistic": lambda z, s: np.log1p(np.exp(-z * s)),
    "hinge": _sgd(_sgd_fast.Hinge(1.0)),
    "squared_hinge": _sgd(_sgd_fast.SquaredHinge(1.0)),
    "modified_huber": _sgd(_sgd_fast.ModifiedHuber()),
}
VALUES = {
    ("squared", ()): lambda y, s: (y - s) ** 2,
    ("absolute", ()): lambda y, s: np.abs(y - s),
    ("quantile", (("alpha", 0.9),)): _pinball(0.9),
    ("quantile", ()): _pinball(0.5),
    ("epsilon_insensitive", (("epsilon", 0.3),)): _sgd(_sgd_fast.EpsilonInsensitive(0.3)),
    ("squared_epsilon_insensitive", (("epsilon", 0.3),)): _sgd(_sgd_fast.SquaredEpsilonInsensitive(0.3)),
    ("mape", ()): lambda y, s: np.abs(y - s) / np.maximum(1, np.abs(y)),
    ("pseudo_huber", (("delta", 0.5),)): lambda y, s: 0.25 * (np.sqrt(1 + 4 * (y - s) ** 2) - 1),
    ("log_cosh", ()): lambda y, s: np.log(np.cosh(y - s)),
    ("expectile", (("alpha", 0.9),)): lambda y, s: np.where(y > s, 0.9, 0.1) * (y - s) ** 2,
    ("power", (("q", 3.5),)): lambda y, s: np.abs(y - s) ** 3.5,
    ("fair", (("c", 2.0),)): lambda y, s: 4 * (np.abs(y - s) / 2 - np.log(1 + np.abs(y - s) / 2)),
}
WEIGHTS = [None, "weighted"]


def _weight(kind: str | None) -> tuple[torch.Tensor | None, np.ndarray]:
    if kind is None:
        return None, np.ones(ROWS)
    weight = _random(7).integers(0, 4, ROWS).astype(np.float64)
    return torch.from_numpy(weight), weight


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("name", MARGINS)
def test_margin_losses(name: str, columns: int, kind: str | None) -> None:
    scores, indices = _scores(columns), _random(1).integers(0, max(columns, 2), ROWS)
    weight, weights = _weight(kind)
    wanted = np.average(MARGINS[name](_signs(indices, columns), scores.numpy()).sum(axis=1), weights=weights)
    assert LOSSES[name](scores, torch.from_numpy(indices), weight).item() == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("kind", WEIGHTS)
def test_hinge_is_sklearns_metric(kind: str | None) -> None:
    scores, indices = _scores(1), _random(1).integers(0, 2, ROWS)
    weight, weights = _weight(kind)
    wanted = sk.hinge_loss(indices, scores.numpy()[:, 0], sample_weight=weights)
    assert LOSSES["hinge"](scores, torch.from_numpy(indices), weight).item() == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("scale", [1.0, 1.7])
def test_logistic_is_log_loss(scale: float, kind: str | None) -> None:
    scores, indices = _scores(1), _random(1).integers(0, 2, ROWS)
    weight, weights = _weight(kind)
    wanted = sk.log_loss(indices, torch.sigmoid(scale * scores).numpy()[:, 0], sample_weight=weights)
    got = LOSSES["logistic"](scores, torch.from_numpy(indices), weight, scale=scale)
    assert got.item() == pytest.approx(wanted, rel=1e-12)


def test_logistic_of_probabilities_as_targets() -> None:
    scores, shares = _scores(1), torch.from_numpy(_random(1).random(ROWS))
    wanted = functional.binary_cross_entropy(torch.sigmoid(scores[:, 0]), shares)
    assert LOSSES["logistic"](scores, shares, None).item() == pytest.approx(wanted.item(), rel=1e-12)


@pytest.mark.parametrize("kind", WEIGHTS)
def test_softmax_is_log_loss(kind: str | None) -> None:
    scores, indices = _scores(3), _random(1).integers(0, 3, ROWS)
    weight, weights = _weight(kind)
    wanted = sk.log_loss(indices, torch.softmax(scores, 1).numpy(), sample_weight=weights)
    assert LOSSES["softmax"](scores, torch.from_numpy(indices), weight).item() == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize(("name", "options"), VALUES)
def test_value_losses(name: str, options: tuple[tuple[str, float], ...], outputs: int, kind: str | None) -> None:
    scores, target = _scores(outputs), _scores(outputs, seed=3)
    weight, weights = _weight(kind)
    wanted = np.average(VALUES[name, options](target.numpy(), scores.numpy()).mean(axis=1), weights=weights)
    target = target[:, 0] if outputs == 1 else target
    assert LOSSES[name](scores, target, weight, **dict(options)).item() == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_squared_error_of_logarithms(shift: float) -> None:
    scores, target = _scores(1), _scores(1, seed=3)[:, 0].exp()
    wanted = sk.mean_squared_error(np.log(target.numpy() + shift), scores.numpy()[:, 0])
    assert LOSSES["log_squared"](scores, target, None, shift=shift).item() == pytest.approx(wanted, rel=1e-12)
    with pytest.raises(BadInput, match="the squared error of their logarithms takes targets above"):
        LOSSES["log_squared"](scores, target - 2, None, shift=shift)
    with pytest.raises(InvalidOption, match="is that of a TransformedTargetRegressor"):
        loss_for("log_squared", Head("regression"))


@pytest.mark.parametrize("delta", [0.5, 1.0, 3.0])
def test_huber(delta: float) -> None:
    scores, target = _scores(1), _scores(1, seed=3)[:, 0]
    wanted = functional.huber_loss(scores[:, 0], target, delta=delta)
    assert LOSSES["huber"](scores, target, None, delta=delta).item() == pytest.approx(wanted.item(), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "options", "power"),
    [
        ("poisson", {}, 1),
        ("gamma", {}, 2),
        ("tweedie", {"power": 1.0}, 1),
        ("tweedie", {"power": 1.3}, 1.3),
        ("tweedie", {}, 1.5),
        ("tweedie", {"power": 2.0}, 2),
    ],
)
def test_deviances(name: str, options: dict[str, float], power: float) -> None:
    """Half the deviance up to a constant of the targets: the same difference between any two sets of scores."""
    target = _random(5).gamma(2.0, size=ROWS) + 0.1
    first, second = _scores(1), _scores(1, seed=3)

    def ours(scores: torch.Tensor) -> float:
        return LOSSES[name](scores, torch.from_numpy(target), None, **options).item()

    def theirs(scores: torch.Tensor) -> float:
        return sk.mean_tweedie_deviance(target, scores.exp().numpy()[:, 0], power=power) / 2

    assert ours(first) - ours(second) == pytest.approx(theirs(first) - theirs(second), rel=1e-9)


SCORES = {"one_vs_one_hinge": 1}
"""One score for each pair of the two classes."""


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_finite_and_correct(name: str) -> None:
    scores = (_scores(2).abs() + 0.1 if name == "probabilities" else _scores(SCORES.get(name, 2))).requires_grad_()
    classifies = name in ("softmax", "probabilities", "one_vs_one_hinge", *MARGINS)
    target = torch.from_numpy(_random(1).integers(0, 2, ROWS)) if classifies else _scores(2, seed=3).abs()
    assert torch.autograd.gradcheck(lambda s: LOSSES[name](s, target, None), [scores])


@pytest.mark.parametrize("name", LOSSES)
def test_zero_weights_give_a_zero_gradient(name: str) -> None:
    scores = _scores(SCORES.get(name, 2)).float().requires_grad_()
    classifies = name in ("softmax", "probabilities", "one_vs_one_hinge", *MARGINS)
    target = torch.zeros(ROWS, dtype=torch.int64) if classifies else torch.ones(ROWS, 2)
    loss = LOSSES[name](scores, target, torch.zeros(ROWS))
    loss.backward()
    assert loss.item() == 0
    assert scores.grad is not None and not scores.grad.any()


BINARY = Head("binary", "sigmoid", "logistic", {"scale": 2.0}, {"scale": 2.0}, np.array(["no", "yes"]))
MARGIN = Head("binary", "identity", "hinge", classes=np.array([0, 1]))
MULTI = Head("multiclass", "softmax", "softmax", classes=np.array([1, 2, 3]))
VALUE = Head("regression", "exp", "poisson")


@pytest.mark.parametrize(
    ("name", "head", "message"),
    [
        ("logistc", BINARY, "did you mean logistic"),
        ("squared", BINARY, "loss='squared' does not fit a binary model; choose from hinge, logistic"),
        ("hinge", VALUE, "loss='hinge' does not fit a regression model"),
    ],
)
def test_a_loss_that_does_not_fit(name: str, head: Head, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        loss_for(name, head)


def test_softmax_needs_a_score_per_class() -> None:
    with pytest.raises(InvalidOption, match="give loss='logistic'"):
        loss_for("softmax", BINARY)(_scores(1), torch.zeros(ROWS, dtype=torch.int64), None)


def test_options_apply_to_the_loss_of_the_source_only() -> None:
    scores, target = _scores(1), torch.zeros(ROWS, dtype=torch.int64)
    assert loss_for(None, BINARY)(scores, target, None) == LOSSES["logistic"](scores, target, None, scale=2.0)
    assert loss_for("hinge", BINARY)(scores, target, None) == LOSSES["hinge"](scores, target, None)


def test_a_custom_loss_returns_one_value() -> None:
    scores = _scores(1)
    assert loss_for(lambda s, y, w: s.sum(), BINARY)(scores, scores, None) == scores.sum()
    with pytest.raises(BadInput, match=r"the loss returned a tensor of shape \(40, 1\)"):
        loss_for(lambda s, y, w: s, BINARY)(scores, scores, None)
    with pytest.raises(BadInput, match="the loss returned 0.5"):
        loss_for(lambda s, y, w: 0.5, BINARY)(scores, scores, None)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("loss", "takes"),
    [
        (lambda scores, target: scores.sum(), r"\(scores, target\)"),
        (torch.nn.BCEWithLogitsLoss(), r"\(input: .*Tensor, target: .*Tensor\).*Tensor"),
        (lambda scores, target, weight, more: scores.sum(), r"\(scores, target, weight, more\)"),
    ],
)
def test_a_custom_loss_of_other_arguments_is_rejected(loss: Any, takes: str) -> None:
    with pytest.raises(InvalidOption, match=rf"takes {takes}, and is called as loss\(scores, target, weight\)"):
        loss_for(loss, BINARY)
