"""Distances between rows and points, and rows of norm 1."""

import torch
from torch import Tensor


def distances(x: Tensor, points: Tensor, norm: float) -> Tensor:
    """``[B, n]`` distances in the Minkowski ``norm``, by subtraction, which keeps the digits of near points."""
    return torch.cdist(x, points, norm, "donot_use_mm_for_euclid_dist")


def squared_distances(x: Tensor, points: Tensor) -> Tensor:
    """``[B, n]`` squared Euclidean distances."""
    return distances(x, points, 2.0) ** 2


def unit_rows(x: Tensor) -> Tensor:
    """Rows divided by their Euclidean norm; rows of (nearly) zero norm stay."""
    norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    small = norm < 10 * 2.0**-52  # as in ``Normalizer``
    return x / torch.where(small, torch.ones_like(norm), norm)


def root(square: Tensor) -> Tensor:
    """Square root whose gradient at 0 is 0 and not infinite."""
    positive = square > 0
    return torch.where(positive, torch.where(positive, square, torch.ones_like(square)).sqrt(), 0.0)
