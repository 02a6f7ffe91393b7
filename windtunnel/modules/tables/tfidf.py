"""Counts of terms, weighted by how rare a term is and scaled to rows of norm 1."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from scipy import sparse
from torch import Tensor

from windtunnel.modules.base import Module, learned
from windtunnel.modules.outputs.finite import Finite
from windtunnel.modules.slices import cache_slices, join_slices

NORMS = ("l1", "l2", "")


def row_sizes(z: Tensor, norm: str) -> Tensor:
    """The norm of each row, ``[B, 1]``, and 1 where it is 0."""
    return or_one(torch.linalg.vector_norm(z, 1.0 if norm == "l1" else 2.0, dim=1, keepdim=True))


def or_one(size: Tensor) -> Tensor:
    """The sizes, and 1 where one is 0."""
    return torch.where(size == 0, 1.0, size)


def weighted(x: Tensor, idf: Tensor) -> Tensor:
    """Give x idf; x where there are no weights."""
    return x * idf if idf.shape[0] > 0 else x


class Tfidf(Module):
    """Term frequency times inverse document frequency.

    y = z / |z| with z = x idf, and y = z where |z| = 0
    """

    CHOICES = {"norm": NORMS}
    idf: Tensor = learned()  # [terms], the weight of each term, or [0] where there are no weights
    norm: str  # "l1" (sum of absolute values), "l2" (Euclidean), or "" for rows as they are
    kept: Tensor = torch.empty(0, dtype=torch.int64)
    """int64 positions of the terms that are given; [0] for all of them. The norm is that of all."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, terms] counts -> [B, terms], or [B, len(kept)]."""
        return join_slices([self.scaled(part) for part in cache_slices(x, x.shape[1])])

    def scaled(self, x: Tensor) -> Tensor:
        """The output for a slice of the rows."""
        z = weighted(x, self.idf)
        y = z.index_select(1, self.kept) if self.kept.shape[0] > 0 else z
        return y if self.norm == "" else y / row_sizes(z, self.norm)

    def required_columns(self, wanted: Sequence[int], width: int) -> Sequence[int]:
        """All terms, which the norm is made of; without one, the terms that are wanted."""
        return range(width) if self.norm else self.terms(wanted)

    def select_columns(self, wanted: Sequence[int], needed: Sequence[int], width: int) -> Module:
        """The wanted terms, by the norm of all."""
        if self.norm:
            return Tfidf(self.idf, self.norm, torch.tensor(self.terms(wanted), device=self.idf.device))
        return Tfidf(self.idf[list(needed)] if len(self.idf) else self.idf, "", self.kept[:0])

    def finite_inputs(self, width: int) -> list[Finite | None]:
        """Where all terms are, for the norm; without one, each term with itself."""
        columns = len(self.kept) or width
        if self.norm:
            return [Finite(tuple(range(width)), sure=False)] * columns
        return [Finite((term,)) for term in self.terms(range(columns))]

    def terms(self, columns: Sequence[int]) -> list[int]:
        """The terms of some output columns."""
        return self.kept[list(columns)].tolist() if len(self.kept) else list(columns)


class SublinearTfidf(Module):
    """``Tfidf`` of the logarithms of counts.

    y = z / |z| with z = (1 + log x) idf where x is not 0, else 0
    """

    CHOICES = {"norm": NORMS}
    MAY_BE_NON_FINITE: ClassVar[bool] = True
    idf: Tensor = learned()  # see ``Tfidf``
    norm: str  # see ``Tfidf``

    def rejected_rows(self, x: Tensor) -> Tensor | None:
        """Rows with missing or infinite counts, or with negative ones, of whose logarithms the source takes no norm."""
        return (~torch.isfinite(x) | (x < 0) & (self.norm != "")).any(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, terms] counts -> [B, terms]; a row with a count below 0 is missing but for its zeros."""
        there = x != 0
        z = torch.where(there, torch.log(torch.where(there, x, torch.ones_like(x))) + 1, x)
        z = weighted(z, self.idf)
        return torch.where(there, z if self.norm == "" else z / row_sizes(z, self.norm), x)


class TermSums(Module):
    """Weighted sums of what ``Tfidf`` makes of counts, in one pass over the counts.

    y = x W^T / |z| + b with z = x idf, and y = x W^T + b where |z| = 0
    """

    CHOICES = {"norm": ("l1", "l2")}  # without a norm, the sums are a Linear
    MIXES_COLUMNS: ClassVar[bool] = True
    idf: Tensor = learned()  # see ``Tfidf``; the norm is "l1" or "l2"
    weight: Tensor = learned()  # [K, terms], the weight of each count: those of the terms times idf
    bias: Tensor = learned()  # [K]
    norm: str  # see ``Tfidf``; the norm is "l1" or "l2"

    def forward(self, x: Tensor) -> Tensor:
        """[B, terms] counts -> [B, K]."""
        return join_slices([self.summed(part) for part in cache_slices(x, x.shape[1], fewest=1)])

    def summed(self, x: Tensor) -> Tensor:
        """The sums of a slice of the rows."""
        # A few sums of many rows as a few long rows, as in ``Linear``.
        return torch.mm(self.weight, x.t()).t() / row_sizes(weighted(x, self.idf), self.norm) + self.bias

    @torch.jit.unused
    def of_sparse(self, x: sparse.csr_array) -> Tensor:
        """``forward`` of rows whose zeros nobody goes through, on the CPU."""
        idf = self.idf.detach().numpy()
        z = x.data * idf[x.indices] if len(idf) else x.data
        sizes = sparse.csr_array((abs(z) if self.norm == "l1" else z * z, x.indices, x.indptr), x.shape).sum(axis=1)
        sizes = torch.from_numpy(sizes if self.norm == "l1" else sizes**0.5)
        return torch.from_numpy(x @ self.weight.detach().t().numpy()) / or_one(sizes).unsqueeze(1) + self.bias
