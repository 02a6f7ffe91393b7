"""Products of columns."""

from collections.abc import Sequence

import torch
from torch import Tensor

from windtunnel.modules.base import Module
from windtunnel.modules.outputs.finite import Finite
from windtunnel.modules.slices import cache_slices


class Polynomial(Module):
    """Products of columns, a column as often as its power says.

    y_k = product over d of x_{factors[k, d]}, where the position ``width`` stands for 1

    Examples
    --------
    >>> Polynomial(torch.tensor([[2, 2], [0, 2], [0, 1], [1, 1]]))(torch.tensor([[2.0, 3.0]])).tolist()
    [[1.0, 2.0, 6.0, 9.0]]
    """

    factors: Tensor  # int64 [K, degree], positions of columns, or ``width`` for no further factor; first to last

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        # Transposed, columns are gathered as rows of memory, and the products of a slice stay in the processor's cache.
        parts = cache_slices(x, self.factors.shape[0])
        if len(parts) == 1:
            return self._products_along(x, 1)
        y = torch.empty((x.shape[0], self.factors.shape[0]), dtype=x.dtype, device=x.device)
        start = 0
        for part in parts:
            y[start : start + part.shape[0]] = self._products_along(part.t(), 0).t()
            start += part.shape[0]
        return y

    def _products_along(self, x: Tensor, along: int) -> Tensor:
        """The products of the columns, which stand along dimension ``along``."""
        padded = torch.cat([x, torch.ones_like(x.narrow(along, 0, 1))], dim=along)
        y = padded.index_select(along, self.factors[:, 0])
        for degree in range(1, self.factors.shape[1]):
            y = y.mul_(padded.index_select(along, self.factors[:, degree]))
        return y

    def has_bits_of_source(self) -> bool:
        """It computes in the order of the source."""
        return True

    def required_columns(self, wanted: Sequence[int], width: int) -> list[int]:
        """The columns that are multiplied."""
        return sorted({column for product in self._products(wanted, width) for column in product})

    def select_columns(self, wanted: Sequence[int], needed: Sequence[int], width: int) -> Module:
        """The wanted products, of the needed columns; no more factors than the longest has."""
        place = {column: position for position, column in enumerate(needed)}
        products = [[place[column] for column in product] for product in self._products(wanted, width)]
        longest = max(1, *map(len, products))
        rows = [product + [len(needed)] * (longest - len(product)) for product in products]
        return Polynomial(torch.tensor(rows, device=self.factors.device))

    def finite_inputs(self, width: int) -> list[Finite | None]:
        """Products with their factors."""
        return [Finite(tuple(dict.fromkeys(product))) for product in self._products(range(len(self.factors)), width)]

    def _products(self, wanted: Sequence[int], width: int) -> list[list[int]]:
        return [[column for column in product if column < width] for product in self.factors[list(wanted)].tolist()]
