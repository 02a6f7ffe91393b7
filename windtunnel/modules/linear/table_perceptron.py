"""Two layers of neurons, the first of which reads numbers and codes."""

import torch
from torch import Tensor
from torch.nn import functional

from windtunnel.modules.base import Module, learned


class TablePerceptron(Module):
    """A hidden layer that adds weighted numbers and a table row for each code, and an output layer.

    h = relu(hidden_weight x + sum_j rows[start_j + code_j] + hidden_bias), y = weight h + bias

    Every code has to be one of its table.

    Examples
    --------
    >>> layers = dict(hidden_weight=torch.tensor([[1.0]]), hidden_bias=torch.zeros(1), weight=torch.tensor([[2.0]]))
    >>> net = TablePerceptron(rows=torch.tensor([[0.5], [-3.0]]), start=torch.tensor([0]), bias=torch.ones(1), **layers)
    >>> net(torch.tensor([[1.0, 0.0], [1.0, 1.0]])).tolist()
    [[4.0], [1.0]]
    """

    rows: Tensor = learned()  # [sum of the numbers of codes, H], the tables one below the other
    start: Tensor  # int64 [codes], where each table begins
    hidden_weight: Tensor = learned()  # [H, numbers]
    hidden_bias: Tensor = learned()  # [H]
    weight: Tensor = learned()  # [K, H]
    bias: Tensor = learned()  # [K]

    def forward(self, x: Tensor) -> Tensor:
        """[B, numbers + codes] -> [B, K]."""
        count = self.hidden_weight.shape[1]
        return self.output(x[:, :count], self.picked_rows(x[:, count:]))

    def picked_rows(self, codes: Tensor) -> Tensor:
        """The table rows of codes ``[B, codes]``: ``[B, codes, H]``."""
        return functional.embedding(codes.to(torch.int64) + self.start, self.rows)

    def output(self, numbers: Tensor, picked: Tensor) -> Tensor:
        """The output ``[B, K]`` for numbers ``[B, numbers]`` and table rows ``[B, codes, H]``."""
        hidden = functional.linear(numbers, self.hidden_weight, self.hidden_bias) + picked.sum(dim=1)
        return functional.linear(torch.relu(hidden), self.weight, self.bias)
