"""Losses by name: from raw scores and encoded targets to one weighted mean.

Each takes ``scores [B, K]`` (float), ``target`` (int64 ``[B]`` class indices for classifiers, float ``[B]`` or
``[B, K]`` for regression) and ``weight [B]`` or None, and returns a scalar: ``sum_i w_i l_i / sum_i w_i`` with ``l_i``
the formula below. s is a raw score, y a target, r = s - y. Classification losses over K > 1 columns of a
one-vs-rest model sum over the columns; regression losses over K > 1 outputs average over them.

``loss_for`` applies regression losses to the output of ``predict`` in the place of s, whatever the link: the signed
square of the score for LightGBM's reg_sqrt, the exponential for squared errors of a Poisson model. Only logistic,
poisson, gamma, tweedie and log_squared take the raw score, which is the log-odds or the logarithm of the prediction.

These and squared_log have a minimum for some targets alone, and raise ``BadInput`` for others, as the sources do.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from windtunnel.errors import BadInput, InvalidOption, nearest
from windtunnel.program.head import Head

Loss = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def logistic(scores: Tensor, target: Tensor, weight: Tensor | None, scale: float = 1.0) -> Tensor:
    """log(1 + exp(-z a s)) with z = +1 for the class and -1 else; a is ``scale``. y may also be floats in [0, 1]."""
    hot = _columns(scores, target)
    if target.is_floating_point():
        _check_targets(hot, (hot < 0) | (hot > 1), "the logistic loss takes targets from 0 to 1")
    rows = functional.binary_cross_entropy_with_logits(scores * scale, hot, reduction="none").sum(dim=1)
    return _mean(rows, weight)


def softmax(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """log(sum_k exp(s_k)) - s_y, over at least two columns."""
    if scores.shape[1] < 2:
        raise InvalidOption("the softmax loss needs a score per class, and this model has one; give loss='logistic'")
    return _mean(functional.cross_entropy(scores, target, reduction="none"), weight)


def probabilities(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """-log(p_y / sum_k p_k) of scores that are probabilities, each kept above 1e-6."""
    clipped = scores.clamp_min(1e-6)
    rows = clipped.sum(dim=1).log() - clipped.gather(1, target.unsqueeze(1)).squeeze(1).log()
    return _mean(rows, weight)


def hinge(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """max(0, 1 - z s) with z = +1 for the class and -1 else."""
    return _mean((1 - _signs(scores, target) * scores).clamp_min(0).sum(dim=1), weight)


def squared_hinge(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """max(0, 1 - z s)^2 with z = +1 for the class and -1 else."""
    return _mean((1 - _signs(scores, target) * scores).clamp_min(0).square().sum(dim=1), weight)


def modified_huber(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """max(0, 1 - z s)^2 where z s >= -1, and -4 z s below, with z = +1 for the class and -1 else."""
    margin = _signs(scores, target) * scores
    rows = torch.where(margin >= -1, (1 - margin).clamp_min(0).square(), -4 * margin)
    return _mean(rows.sum(dim=1), weight)


def squared(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """r^2."""
    return _mean(_residual(scores, target).square(), weight)


def relevance(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """r^2, the loss of rankers: their own losses need the queries of the rows."""
    return squared(scores, target, weight)


def absolute(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """|r|."""
    return _mean(_residual(scores, target).abs(), weight)


def huber(scores: Tensor, target: Tensor, weight: Tensor | None, delta: float = 1.0) -> Tensor:
    """r^2 / 2 where |r| <= delta, and delta (|r| - delta / 2) beyond."""
    size = _residual(scores, target).abs()
    return _mean(torch.where(size <= delta, size.square() / 2, delta * (size - delta / 2)), weight)


def pseudo_huber(scores: Tensor, target: Tensor, weight: Tensor | None, delta: float = 1.0) -> Tensor:
    """delta^2 (sqrt(1 + (r / delta)^2) - 1), XGBoost's pseudo-Huber loss."""
    squares = _residual(scores, target).square()
    # Without the 1s of the formula, to which float32 would round small residuals.
    return _mean(squares / ((1 + squares / (delta * delta)).sqrt() + 1), weight)


def log_cosh(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """log(cosh(r)), CatBoost's LogCosh."""
    size = _residual(scores, target).abs()
    return _mean(size + functional.softplus(-2 * size) - math.log(2), weight)


def expectile(scores: Tensor, target: Tensor, weight: Tensor | None, alpha: float = 0.5) -> Tensor:
    """Alpha r^2 where y > s, else (1 - alpha) r^2; the ``alpha`` expectile is the best constant."""
    gap = _residual(scores, target)
    return _mean(alpha * gap.clamp_max(0).square() + (1 - alpha) * gap.clamp_min(0).square(), weight)


def power(scores: Tensor, target: Tensor, weight: Tensor | None, q: float = 2.0) -> Tensor:
    """|r|^q, CatBoost's Lq; q at least 1."""
    return _mean(_residual(scores, target).abs().pow(q), weight)


def squared_log(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """(log(1 + s) - log(1 + y))^2 of targets above -1, s at least -1 + 1e-6, as in XGBoost."""
    y = _outputs(scores, target)
    _check_targets(y, y <= -1, "the squared log loss takes targets above -1")
    logs = (1 + scores).clamp_min(1e-6).log() - y.log1p()
    return _mean(logs.square(), weight)


def log_squared(scores: Tensor, target: Tensor, weight: Tensor | None, shift: float = 0.0) -> Tensor:
    """(s - log(y + shift))^2, the squared error of a regressor that was fitted on logarithms of the target."""
    y = _outputs(scores, target) + shift
    _check_targets(y - shift, y <= 0, f"the squared error of their logarithms takes targets above {0 - shift:g}")
    return _mean((scores - y.log()).square(), weight)


def fair(scores: Tensor, target: Tensor, weight: Tensor | None, c: float = 1.0) -> Tensor:
    """c^2 (|r| / c - log(1 + |r| / c)), LightGBM's fair loss."""
    size = _residual(scores, target).abs() / c
    return _mean(c * c * (size - size.log1p()), weight)


def mape(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """|r| / max(1, |y|), LightGBM's mean absolute percentage error."""
    return _mean(_residual(scores, target).abs() / _outputs(scores, target).abs().clamp_min(1), weight)


def quantile(scores: Tensor, target: Tensor, weight: Tensor | None, alpha: float | Sequence[float] = 0.5) -> Tensor:
    """max(alpha (y - s), (alpha - 1) (y - s)), the pinball loss of the ``alpha`` quantile, or one per output."""
    gap, levels = -_residual(scores, target), scores.new_tensor(alpha)
    return _mean(torch.maximum(levels * gap, (levels - 1) * gap), weight)


def epsilon_insensitive(scores: Tensor, target: Tensor, weight: Tensor | None, epsilon: float = 0.1) -> Tensor:
    """max(0, |r| - epsilon)."""
    return _mean((_residual(scores, target).abs() - epsilon).clamp_min(0), weight)


def squared_epsilon_insensitive(scores: Tensor, target: Tensor, weight: Tensor | None, epsilon: float = 0.1) -> Tensor:
    """max(0, |r| - epsilon)^2."""
    return _mean((_residual(scores, target).abs() - epsilon).clamp_min(0).square(), weight)


def poisson(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """exp(s) - y s: half the Poisson deviance of the mean exp(s), up to a constant."""
    y = _outputs(scores, target)
    _check_targets(y, y < 0, "the Poisson loss takes targets from 0 up")
    return _mean(scores.exp() - y * scores, weight)


def gamma(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """Return s + y exp(-s): half the gamma deviance of the mean exp(s), up to a constant."""
    y = _outputs(scores, target)
    _check_targets(y, y <= 0, "the gamma loss takes targets above 0")
    return _mean(scores + y * (-scores).exp(), weight)


def tweedie(scores: Tensor, target: Tensor, weight: Tensor | None, power: float = 1.5) -> Tensor:
    """exp((2 - p) s) / (2 - p) - y exp((1 - p) s) / (1 - p): half the deviance of power p, up to a constant."""
    if power == 1:
        return poisson(scores, target, weight)
    if power == 2:
        return gamma(scores, target, weight)
    y = _outputs(scores, target)
    if power > 1:
        above = power > 2
        wanted = "targets above 0" if above else "targets from 0 up"
        _check_targets(y, y <= 0 if above else y < 0, f"the Tweedie loss of power {power:g} takes {wanted}")
    mean = ((2 - power) * scores).exp() / (2 - power)
    return _mean(mean - y * ((1 - power) * scores).exp() / (1 - power), weight)


def one_vs_one_hinge(scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """Sum over the pairs of classes i < j that hold y of max(0, 1 - z s_ij), z = 1 where y = i and -1 where y = j."""
    classes = round((1 + (1 + 8 * scores.shape[1]) ** 0.5) / 2)
    first, second = torch.triu_indices(classes, classes, 1, device=scores.device)
    sign = (target.unsqueeze(1) == first).to(scores.dtype) - (target.unsqueeze(1) == second).to(scores.dtype)
    return _mean(((1 - sign * scores).clamp_min(0) * sign.abs()).sum(dim=1), weight)


_CLASSES = (softmax, probabilities, hinge, squared_hinge, modified_huber, one_vs_one_hinge)
_MEANS = (poisson, gamma, tweedie)
_LOGARITHMS = (*_MEANS, log_squared)
_VALUES = (
    squared, relevance, absolute, huber, pseudo_huber, log_cosh, expectile, power, squared_log, fair, mape, quantile,
    epsilon_insensitive, squared_epsilon_insensitive, *_LOGARITHMS,
)  # fmt: skip
LOSSES: dict[str, Callable[..., Tensor]] = {loss.__name__: loss for loss in (logistic, *_CLASSES, *_VALUES)}

RAW_SCORE_LOSSES = ("logistic", *(loss.__name__ for loss in _LOGARITHMS))
"""Regression losses of the raw score; the others are of the output of ``predict``."""
UNKNOWN_LOSS = "unknown"
"""The loss of a source whose own is not a function of scores and targets, or not supported."""
NO_LOSS = (
    "fit does not know the loss of this source: models do not store a custom objective, survival models "
    "(survival:cox, survival:aft, Cox) have times as targets whose sign says whether the event was seen, and some "
    "objectives are unsupported. Give loss='logistic' if the targets are 0 and 1 and the scores log-odds, "
    "loss='squared' if the scores are values, or a function (scores [B, K], target, weight); predict and "
    "windtunnel.compile need none"
)


def loss_named(name: str) -> Loss:
    """The loss of a name in ``LOSSES``; ``InvalidOption`` for an unknown one."""
    if name not in LOSSES:
        hint = nearest(name, sorted(LOSSES))
        raise InvalidOption(f"loss={name!r} is not known; give a function (scores, target, weight), or a name: {hint}")
    return LOSSES[name]


def loss_for(loss: str | Loss | None, head: Head) -> Loss:
    """Return a loss by name, a custom loss, or for None the translation's own, as ``loss(scores, target, weight)``.

    Regression losses are of the output of ``predict``, except ``RAW_SCORE_LOSSES``. A custom loss gets raw scores.

    Raises
    ------
    InvalidOption
        For an unknown name, a loss that does not fit the task or the link, or a function of other arguments.
    BadInput
        If the source's own loss is ``unknown`` and no other is given.
    """
    if loss is not None and not isinstance(loss, str):
        _check_arguments(loss)
        return CustomLoss(loss)
    name = loss or head.loss
    if name == UNKNOWN_LOSS == head.loss:
        raise BadInput(NO_LOSS)
    function = loss_named(name)
    if (function in _VALUES) != (head.task == "regression") and name != "logistic":
        fitting = sorted({"logistic", *(fit.__name__ for fit in (_VALUES if head.task == "regression" else _CLASSES))})
        raise InvalidOption(f"loss={name!r} does not fit a {head.task} model; choose from {', '.join(fitting)}")
    if function is log_squared and head.loss != name:
        raise InvalidOption(
            f"loss={name!r} is that of a TransformedTargetRegressor with func=np.log or np.log1p; give another one"
        )
    if function in _MEANS and head.link != "exp" and LOSSES.get(head.loss) not in _MEANS:
        raise InvalidOption(
            f"loss={name!r} takes scores as logarithms of a mean, and this model has others (link {head.link!r}); fit "
            "the source with a Poisson, gamma or Tweedie objective, or give a function (scores, target, weight)"
        )
    # Options belong to the source's loss; another loss has its defaults.
    chosen: Loss = partial(function, **head.loss_options) if name == head.loss else function
    linked = head.task == "regression" and head.link != "identity" and name not in RAW_SCORE_LOSSES
    return LossOfPredictions(chosen, head) if linked else chosen


def loss_text(loss: str | Loss | None, head: Head) -> str:
    """The name of the loss that ``loss_for`` returns, with its options, such as "quantile (alpha=0.9)"."""
    if loss is not None and not isinstance(loss, str):
        return str(getattr(loss, "__name__", type(loss).__name__))
    options = head.loss_options if loss in (None, head.loss) else {}
    values = ", ".join(f"{name}={value}" for name, value in options.items())
    return f"{loss or head.loss} ({values})" if values else loss or head.loss


@dataclass(frozen=True)
class LossOfPredictions:
    """A loss of the output of ``predict``."""

    loss: Loss
    head: Head

    def __call__(self, scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        """Apply the link, then the loss."""
        return self.loss(self.head.linked(scores), target, weight)


@dataclass(frozen=True)
class CustomLoss:
    """A loss that the user gives as a function of raw scores; it must return one value."""

    function: Loss

    def __call__(self, scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        """The value as a scalar tensor."""
        value = self.function(scores, target, weight)
        if not isinstance(value, Tensor) or value.numel() != 1:
            got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
            raise BadInput(f"the loss returned {got}; it must return a tensor with one value, such as rows.mean()")
        if scores.requires_grad and not value.requires_grad:
            raise BadInput("the loss returned a tensor without a gradient; compute it from the scores, in torch alone")
        return value.reshape(())


def _check_arguments(loss: Loss) -> None:
    """Reject a function that cannot be called with scores, target and weight, before training."""
    try:
        arguments = inspect.signature(loss.forward if isinstance(loss, nn.Module) else loss)
    except ValueError:  # some functions in C have no signature
        return
    try:
        arguments.bind("scores", "target", "weight")
    except TypeError as error:
        raise InvalidOption(
            f"loss={loss!r} takes {arguments}, and is called as loss(scores, target, weight): scores [B, K], target "
            "int64 class numbers [B] or float values, weight [B] or None. Wrap it, such as loss=lambda scores, target, "
            "weight: yours(scores[:, 0], target.float()), where no rows have weights"
        ) from error


def _mean(values: Tensor, weight: Tensor | None) -> Tensor:
    """The weighted mean over rows of values ``[B]``, or ``[B, K]``, which are first averaged over the K outputs."""
    rows = values.mean(dim=1) if values.dim() == 2 else values
    if weight is None:
        return rows.mean()
    # Without weights above 0 the loss is 0 / tiny, with gradient 0.
    return (rows * weight).sum() / weight.sum().clamp_min(torch.finfo(rows.dtype).tiny)


def _columns(scores: Tensor, target: Tensor) -> Tensor:
    """Targets in the shape of the scores: 0/1 per column for class indices, floats as they are."""
    if target.is_floating_point():
        return _outputs(scores, target)
    if scores.shape[1] == 1:
        return target.to(scores.dtype).unsqueeze(1)
    return functional.one_hot(target, scores.shape[1]).to(scores.dtype)


def _signs(scores: Tensor, target: Tensor) -> Tensor:
    return 2 * _columns(scores, target) - 1


def _outputs(scores: Tensor, target: Tensor) -> Tensor:
    if target.numel() != scores.numel():
        raise BadInput(
            f"targets of shape {tuple(target.shape)} for scores of shape {tuple(scores.shape)}; give one value for "
            "each output of each row"
        )
    return target.to(scores.dtype).reshape(scores.shape)


def _check_targets(target: Tensor, wrong: Tensor, accepted: str) -> None:
    """Raise ``BadInput`` if any target is wrong: on such rows the loss falls without a limit, or means nothing."""
    if wrong.any():
        raise BadInput(
            f"{int(wrong.sum())} of {target.numel()} targets are from {target[wrong].min():g} to "
            f"{target[wrong].max():g}, and {accepted}. Correct or drop these rows, or give another loss=."
        )


def _residual(scores: Tensor, target: Tensor) -> Tensor:
    return scores - _outputs(scores, target)
