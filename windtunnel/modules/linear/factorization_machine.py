"""Factorization machines of second order."""

import torch
from torch import Tensor
from torch.nn import functional

from windtunnel.modules.base import Module, learned


class FactorizationMachine(Module):
    """K weighted sums of the columns and of their products two by two, whose weights are inner products of factors.

    y_k = b_k + sum_i w_ki x_i + sum_{i < j} <v_ki, v_kj> x_i x_j

    computed in time linear in the columns: the last sum is half of |sum_i v_ki x_i|^2 - sum_i |v_ki|^2 x_i^2.

    Source
    ------
    S. Rendle, Factorization Machines, ICDM 2010, lemma 3.1.
    """

    weight: Tensor = learned()  # [K, width]
    bias: Tensor = learned()  # [K]
    factors: Tensor = learned()  # [K, width, F]

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        summed = torch.einsum("bw,kwf->bkf", x, self.factors).square().sum(dim=2)
        squares = functional.linear(x.square(), self.factors.square().sum(dim=2))
        return functional.linear(x, self.weight, self.bias) + 0.5 * (summed - squares)
