"""Links: from raw scores to what ``predict_proba`` (or ``predict``, for regressors) gives."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def identity(scores: Tensor) -> Tensor:
    """The score itself; as "probabilities" it is one per class already."""
    return scores


def shares(scores: Tensor) -> Tensor:
    """max(s_k, 0) / sum_j max(s_j, 0), of scores that training has moved from probabilities; uniform if all are 0."""
    positive = scores.clamp_min(0.0)
    total = positive.sum(dim=1, keepdim=True)
    # NaN where a total of 0 is divided by would reach the gradient through the branch that is not taken.
    parts = positive / torch.where(total > 0, total, torch.ones_like(total))
    return torch.where(total > 0, parts, torch.full_like(positive, 1 / scores.shape[1]))


def sigmoid(scores: Tensor, scale: float = 1.0) -> Tensor:
    """One score s per row -> probabilities [1 - p, p] with p = 1 / (1 + exp(-scale s))."""
    positive = logistic(scores, scale)
    # As the sources do; in float64, which methods compute links in, 1 - p keeps the digits that matter.
    return torch.cat([1 - positive, positive], dim=1)


def softmax(scores: Tensor) -> Tensor:
    """exp(s_k) / sum_j exp(s_j)."""
    if scores.shape[1] > 20:
        return torch.softmax(scores, dim=1)
    # Of few classes torch takes a row at a time along rows, and many rows at once across them: a fifth of the time.
    return torch.softmax(scores.t().contiguous(), dim=0).t().contiguous()


def one_vs_rest(scores: Tensor) -> Tensor:
    """Sigmoid of each score, rows normalised to sum 1, uniform where all are 0 (scikit-learn's OvR probabilities)."""
    # In float64, as the source: in float32 sigmoids are 0 from -88 on, in float64 from -709 on.
    return shares(torch.sigmoid(scores.to(torch.float64))).to(scores.dtype)


def modified_huber(scores: Tensor) -> Tensor:
    """(clip(s, -1, 1) + 1) / 2; rows of several classes normalised, uniform where all are 0."""
    positive = (scores.clamp(-1, 1) + 1) / 2
    if scores.shape[1] == 1:
        return torch.cat([1 - positive, positive], dim=1)
    return shares(positive)


def exp(scores: Tensor) -> Tensor:
    """exp(s), the mean of Poisson, gamma and Tweedie models."""
    return torch.exp(scores)


def expm1(scores: Tensor) -> Tensor:
    """exp(s) - 1, of a model of log(1 + y)."""
    return torch.expm1(scores)


def logistic(scores: Tensor, scale: float = 1.0) -> Tensor:
    """1 / (1 + exp(-scale s)) as a value; as "sigmoids" of each class, not normalised (LightGBM's multiclassova)."""
    return torch.sigmoid(scores if scale == 1 else scores * scale)


def log1p_exp(scores: Tensor) -> Tensor:
    """log(1 + exp(s)), LightGBM's cross_entropy_lambda."""
    return torch.nn.functional.softplus(scores)


def signed_square(scores: Tensor) -> Tensor:
    """sign(s) s^2, the inverse of LightGBM's reg_sqrt."""
    return torch.sign(scores) * scores * scores


PROBABILITIES = ("probabilities", "shares")
"""Links of scores that are probabilities themselves."""
LINKS: dict[str, Callable[..., Tensor]] = {
    "probabilities": identity,
    "sigmoids": logistic,
} | {
    link.__name__: link
    for link in (
        identity, shares, sigmoid, softmax, one_vs_rest, modified_huber, exp, expm1, logistic, log1p_exp, signed_square,
    )
}  # fmt: skip
