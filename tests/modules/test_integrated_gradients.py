"""Contributions of features to the output of layers of neurons."""

from __future__ import annotations

import numpy as np
import torch

from windtunnel.modules.linear.integrated_gradients import integrated_gradients
from windtunnel.modules.linear.multilayer import MultilayerPerceptron


def layers(sizes: list[int], activation: str = "relu") -> MultilayerPerceptron:
    draws = torch.Generator().manual_seed(0)
    weights = sum(one * other for one, other in zip(sizes[:-1], sizes[1:], strict=True))
    weight, bias = (torch.randn(count, generator=draws, dtype=torch.float64) for count in (weights, sum(sizes[1:])))
    return MultilayerPerceptron(weight, bias, sizes, activation).eval()


def test_they_add_up_to_the_output() -> None:
    net, x = layers([4, 8, 3]), torch.randn(50, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values, base = integrated_gradients(net, x, torch.full((4,), 0.5, dtype=torch.float64))
    with torch.no_grad():
        np.testing.assert_allclose(base + values.sum(axis=1), net(x).numpy(), atol=1e-12)


def test_of_a_linear_function_they_are_its_terms() -> None:
    net, x = layers([3, 2]), torch.tensor([[1.0, 2.0, -1.0]], dtype=torch.float64)
    start = torch.tensor([0.5, 0.0, 1.0], dtype=torch.float64)
    values, base = integrated_gradients(net, x, start)
    weight = net.weight.detach().view(2, 3)
    np.testing.assert_allclose(values[0], (weight * (x - start)).T.numpy(), atol=1e-12)
    np.testing.assert_allclose(base, (weight @ start + net.bias.detach()).numpy(), atol=1e-12)
