"""Contributions of the features to the output of layers of neurons."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.modules.linear.multilayer import MultilayerPerceptron

POINTS = 32
"""Points of a line at which the gradient is taken."""
ROWS_AT_ONCE = 1024


def integrated_gradients(
    layers: MultilayerPerceptron, x: Tensor, start: Tensor
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    r"""Contributions of features to the output, and the output that they start from, that of the features ``start``.

        (x_j - a_j) \int_0^1 d y_k / d x_j (a + t (x - a)) dt, with a = start

    The integral is a mean over ``POINTS`` points. What the points miss is added to the contributions of a row in
    proportion to their size, so that they and the start add up to the output.

    Parameters
    ----------
    layers : MultilayerPerceptron
    x : Tensor
        ``[B, width]``, features.
    start : Tensor
        ``[width]``, features that the others are compared with.

    Returns
    -------
    values : float64 [B, width, K]
    base : float64 [K]

    Source
    ------
    Sundararajan, Taly, Yan, "Axiomatic Attribution for Deep Networks", ICML 2017.
    """
    x = x.detach()
    with torch.no_grad():
        base = layers(start.unsqueeze(0))[0].double()
    parts = [_of_rows(layers, x[first : first + ROWS_AT_ONCE], start, base) for first in range(0, len(x), ROWS_AT_ONCE)]
    return torch.cat(parts).cpu().numpy(), base.cpu().numpy()


def _of_rows(layers: MultilayerPerceptron, x: Tensor, start: Tensor, base: Tensor) -> Tensor:
    change = x - start
    gradient = x.new_zeros(len(x), x.shape[1], len(base), dtype=torch.float64)
    for point in range(POINTS):
        at = (start + change * ((point + 0.5) / POINTS)).requires_grad_()
        with torch.enable_grad():
            outputs = layers(at).sum(dim=0)
            for k, output in enumerate(outputs):
                gradient[:, :, k] += torch.autograd.grad(output, at, retain_graph=k + 1 < len(outputs))[0]
    values = gradient * (change.double().unsqueeze(2) / POINTS)
    with torch.no_grad():
        missing = layers(x).double() - base - values.sum(dim=1)
    size = values.abs()
    share = size / size.sum(dim=1, keepdim=True).clamp_min(torch.finfo(size.dtype).tiny)
    contributions: Tensor = values + share * missing.unsqueeze(1)
    return contributions
