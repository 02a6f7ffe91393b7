"""Layers of neurons."""

from typing import ClassVar

import torch
from torch import Tensor

from windtunnel.modules.base import Module, learned
from windtunnel.modules.slices import cache_slices

ACTIVATIONS = ("identity", "logistic", "tanh", "relu")


class MultilayerPerceptron(Module):
    """Affine layers with an activation after each one.

    h_0 = x, h_i = f(h_{i-1} W_i^T + b_i), y = h_L; the last layer has its own f.

    Examples
    --------
    >>> net = MultilayerPerceptron(torch.tensor([1.0, -1.0, 2.0, 3.0]), torch.zeros(3), [1, 2, 1], "relu")
    >>> net(torch.tensor([[1.0], [-1.0]])).tolist()
    [[2.0], [3.0]]
    """

    CHOICES = {"activation": ACTIVATIONS, "output": ACTIVATIONS}
    __constants__: ClassVar[list[str]] = ["FEWEST"]
    FEWEST = 256  # rows of a slice, so that a product is worth laying out the weights for
    weight: Tensor = learned()  # [sum of products of neighbouring sizes], each W_i [sizes[i], sizes[i - 1]] row by row
    bias: Tensor = learned()  # [sum of sizes[1:]], the b_i one after the other
    sizes: list[int]  # the width of the input and of each layer
    # activation, output: f of the hidden layers and of the last one: "identity", "logistic", "tanh" or "relu"
    activation: str
    output: str = "identity"
    reference: Tensor = torch.empty(0)  # [sizes[0]], the mean input in training, or [0] where it is unknown

    def forward(self, x: Tensor) -> Tensor:
        """[B, sizes[0]] -> [B, sizes[-1]]."""
        parts = cache_slices(x, max(self.sizes), self.FEWEST)
        if len(parts) == 1:
            return self.run_layers(x).t()
        y = torch.empty((x.shape[0], self.sizes[-1]), dtype=x.dtype, device=x.device)
        start = 0
        for part in parts:
            y[start : start + part.shape[0]] = self.run_layers(part).t()
            start += part.shape[0]
        return y

    def run_layers(self, x: Tensor) -> Tensor:
        """The output for a slice of the rows, ``[sizes[-1], b]``: a few long rows are faster than many."""
        x = x.t()
        layers = len(self.sizes) - 1
        at_weight, at_bias = 0, 0
        for layer in range(layers):
            width_in, width_out = self.sizes[layer], self.sizes[layer + 1]
            weight = self.weight[at_weight : at_weight + width_in * width_out].view(width_out, width_in)
            x = torch.addmm(self.bias[at_bias : at_bias + width_out].unsqueeze(1), weight, x)
            x = activated(x, self.activation if layer < layers - 1 else self.output)
            at_weight += width_in * width_out
            at_bias += width_out
        return x


def activated(x: Tensor, activation: str) -> Tensor:
    """The activation, computed in place."""
    if activation == "logistic":
        return torch.sigmoid_(x)
    if activation == "tanh":
        return torch.tanh_(x)
    if activation == "relu":
        return torch.relu_(x)
    return x
