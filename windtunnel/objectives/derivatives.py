"""Derivatives of a loss by the scores of each row."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def derivatives(loss: Callable[[Tensor], Tensor], scores: Tensor, *, second: bool = True) -> tuple[Tensor, Tensor]:
    """First and second derivatives ``[N, K]`` of a loss by each of the scores ``[N, K]``.

    ``loss`` is a sum over rows, so that the derivatives of a row depend on its own scores only. The second ones are 0
    without ``second``, and for losses that have none, such as the absolute error.
    """
    scores = scores.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(scores), scores, create_graph=second)
    curvature = torch.zeros_like(gradient)
    if second and gradient.requires_grad:
        for k in range(scores.shape[1]):
            (by_score,) = torch.autograd.grad(gradient[:, k].sum(), scores, retain_graph=True)
            curvature[:, k] = by_score[:, k]
    return gradient.detach(), curvature.detach()
