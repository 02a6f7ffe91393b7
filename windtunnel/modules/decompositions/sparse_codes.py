"""Sparse codes of rows in a dictionary of atoms."""

import torch
from torch import Tensor

from windtunnel.modules.base import EPSILON, Module, bounded, learned
from windtunnel.modules.loops import unfinished


def split_signs(codes: Tensor) -> Tensor:
    """``[B, K]`` -> ``[B, 2 K]``: the positive parts, then the negative parts without their sign."""
    return torch.cat([codes.clamp_min(0.0), -codes.clamp_max(0.0)], dim=1)


class SoftThreshold(Module):
    """Inner products with the atoms, moved towards zero.

    y = sign(c) max(|c| - threshold, 0),    c = x D^T
    """

    atoms: Tensor = learned()  # [K, width]
    threshold: float  # in the unit of the inner product
    positive: bool = False  # whether negative codes become 0
    split: bool = False  # whether positive and negative parts stand side by side

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K], or [B, 2 K] where ``split``."""
        products = x @ self.atoms.t()
        codes = torch.sign(products) * (products.abs() - self.threshold).clamp_min(0.0)
        if self.positive:
            codes = codes.clamp_min(0.0)
        return split_signs(codes) if self.split else codes


class MatchingPursuit(Module):
    """Least squares on atoms that are chosen one by one, each the one that the residual matches best.

    In every step the atom with the greatest |<x - y D, d_k>| joins, and y solves the least squares on all that have. A
    row is done when the best match, squared, is under 2.2e-16, or the next atom depends on those that it has.
    """

    atoms: Tensor = learned()  # [K, width]
    count: int = bounded(0, 10_000)  # how many atoms a row gets at most
    split: bool = False  # whether positive and negative parts stand side by side

    def __post_init__(self) -> None:
        self.epsilon = EPSILON

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K], or [B, 2 K] where ``split``."""
        gram, products = self.atoms @ self.atoms.t(), x @ self.atoms.t()
        codes, chosen = torch.zeros_like(products), torch.zeros_like(products, dtype=torch.bool)
        going = torch.ones([x.shape[0], 1], dtype=torch.bool, device=x.device)
        indices = torch.zeros([x.shape[0], 0], dtype=torch.int64, device=x.device)
        for _ in range(self.count):
            residual = products - codes @ gram
            best = residual.abs().argmax(dim=1, keepdim=True)
            going = going & ~chosen.gather(1, best) & (residual.gather(1, best) ** 2 >= self.epsilon)
            going = going & (self.independent(gram, indices, best, going) > self.epsilon)
            if not unfinished(going):
                break
            indices = torch.cat([indices, best], dim=1)
            values = self.solved(gram, indices, products.gather(1, indices), going)
            codes = torch.where(going, torch.zeros_like(codes).scatter(1, indices, values), codes)
            chosen = chosen.scatter(1, best, torch.ones_like(going))
        return split_signs(codes) if self.split else codes

    def solved(self, gram: Tensor, indices: Tensor, right: Tensor, going: Tensor) -> Tensor:
        """The solution ``[B, n]`` of the normal equations on the atoms of each row; anything for rows that are done."""
        left = gram[indices.unsqueeze(2), indices.unsqueeze(1)]
        unit = torch.eye(indices.shape[1], dtype=gram.dtype, device=gram.device)
        solution: Tensor = torch.linalg.solve(torch.where(going.unsqueeze(2), left, unit), right.unsqueeze(2))
        return solution.squeeze(2)

    def independent(self, gram: Tensor, indices: Tensor, best: Tensor, going: Tensor) -> Tensor:
        """The squared length ``[B, 1]`` of what the atoms of a row leave of the next one; infinite for the first."""
        if indices.shape[1] == 0:
            return torch.full(best.shape, float("inf"), dtype=gram.dtype, device=gram.device)
        shared = gram[best, indices]
        explained = (shared * self.solved(gram, indices, shared, going)).sum(dim=1, keepdim=True)
        return (gram[best, best] - explained).detach()
