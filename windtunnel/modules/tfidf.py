"""Counts of terms, weighted by how rare a term is and scaled to rows of norm 1."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from typing import ClassVar

import torch
from torch import Tensor, nn

from windtunnel.modules.base import Module

NORMS = ("l1", "l2", "")


def weighted(x: Tensor, idf: Tensor, norm: str) -> Tensor:
    """Give z / |z| with z = x idf, and z where |z| = 0."""
    if idf.shape[0] > 0:
        x = x * idf
    if norm == "":
        return x
    # [B, 1]; the sum before the root, whose gradient is infinite at 0.
    size = (x * x if norm == "l2" else x.abs()).sum(dim=1, keepdim=True)
    size = torch.where(size == 0, torch.ones_like(size), size)
    return x / (size.sqrt() if norm == "l2" else size)


class Tfidf(Module):
    """Term frequency times inverse document frequency.

    y = z / |z| with z = x idf, and y = z where |z| = 0

    Shape
    -----
    ``[B, terms]`` counts -> ``[B, terms]``.

    Parameters
    ----------
    idf : Tensor
        ``[terms]``, the weight of each term; learned. ``[0]`` where there are no weights.
    norm : str
        "l1" (sum of absolute values), "l2" (Euclidean), or "" for rows as they are.

    Examples
    --------
    >>> import torch
    >>> Tfidf(torch.tensor([1.5, 4.0]), "l1")(torch.tensor([[2.0, 1.25], [0.0, 0.0]])).tolist()
    [[0.375, 0.625], [0.0, 0.0]]
    """

    FACTS: ClassVar[tuple[str, ...]] = ("norm",)

    def __init__(self, idf: Tensor, norm: str) -> None:
        super().__init__()
        if norm not in NORMS:
            raise ValueError(f"norm must be 'l1', 'l2' or '', however: norm={norm!r}")
        self.idf = nn.Parameter(idf.detach().clone())
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        """[B, terms] -> [B, terms]."""
        return weighted(x, self.idf, self.norm)


class SublinearTfidf(Module):
    """``Tfidf`` of the logarithms of counts.

    y = z / |z| with z = (1 + log x) idf where x is not 0, else 0

    Shape
    -----
    ``[B, terms]`` counts -> ``[B, terms]``; a row with a count below 0 is missing but for its zeros.

    Parameters
    ----------
    idf, norm
        See ``Tfidf``.

    Examples
    --------
    >>> import torch
    >>> SublinearTfidf(torch.tensor([1.5, 4.0]), "")(torch.tensor([[1.0, 0.0]])).tolist()
    [[1.5, 0.0]]
    """

    FACTS: ClassVar[tuple[str, ...]] = ("norm",)
    PARTIAL: ClassVar[bool] = True

    def __init__(self, idf: Tensor, norm: str) -> None:
        super().__init__()
        if norm not in NORMS:
            raise ValueError(f"norm must be 'l1', 'l2' or '', however: norm={norm!r}")
        self.idf = nn.Parameter(idf.detach().clone())
        self.norm = norm

    def outside(self, x: Tensor) -> Tensor | None:
        """Rows with missing or infinite counts, or with negative ones, of whose logarithms the source takes no norm."""
        return (~torch.isfinite(x) | (x < 0) & (self.norm != "")).any(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, terms] -> [B, terms]."""
        there = x != 0
        z = torch.where(there, torch.log(torch.where(there, x, torch.ones_like(x))) + 1, x)
        return torch.where(there, weighted(z, self.idf, self.norm), x)
