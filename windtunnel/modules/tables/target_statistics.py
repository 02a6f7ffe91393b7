"""CatBoost's categories: hashes of texts, and target statistics that are looked up by hash."""

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from windtunnel.errors import BadFile
from windtunnel.modules.base import Module, derived, learned


class CategoryHashes(Module):
    """The hash of the text of each category.

    y_j = hashes[start_j + id_j] where id_j < count_j, else id_j - count_j as a signed number of 32 bits

    Ids from ``count`` on hold the hash themselves: the text is none that the vocabulary knows.

    Examples
    --------
    >>> CategoryHashes(torch.tensor([7, 8, 9]), torch.tensor([3]))(torch.tensor([[1], [3 + 2**32 - 5]])).tolist()
    [[8], [-5]]
    """

    hashes: Tensor  # int64 [sum of counts], one column below the other; no category has a hash beyond 32 bits
    count: Tensor  # int64 [m], how many ids of each column have their hash there, at least 2
    start: Tensor = derived()

    def __post_init__(self) -> None:
        self.register_buffer("start", torch.cumsum(self.count, 0) - self.count, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """int64 [B, m], 0 and up -> int64 [B, m]."""
        beyond = ids - self.count
        at = torch.where(beyond < 0, ids, torch.zeros_like(ids)) + self.start
        held = torch.where(beyond >= 2147483648, beyond - 4294967296, beyond)
        return torch.where(beyond < 0, self.hashes[at], held)


class AboveBorders(Module):
    """Whether numbers, rounded to float32, are above a border, as whole numbers.

    y_j = 1 where x_j > border_j, else 0; for a missing x_j it is missing_j
    """

    border: Tensor  # [width], in the unit of the column, float32 numbers
    missing: Tensor  # bool [width]

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> int64 [B, width]."""
        past = x.to(torch.float32).to(x.dtype) > self.border
        return (past | (torch.isnan(x) & self.missing)).to(torch.int64)


class TargetStatistics(Module):
    """Numbers for combinations of categories and conditions, from the row of a table that their hash leads to.

    Combination p has up to L places. Place i gives the hash h_i of a column, or 1 where that is ``equal`` and 0
    elsewhere; the hash of the combination is

    H_p = salt_p + sum_i factor_ip h_i    (modulo 2^64)

    and y_k = rows[first_k + r], where r is the number of H_p among the hashes of its combination p = ``combination_k``
    in the order of its tables, or their count where it is not among them. One sorted list holds
    the hashes of all combinations: each has its salt in it, so that those of different combinations differ.

    References
    ----------
    Prokhorenkova, Gusev, Vorobev, Dorogush, Gulin: CatBoost: unbiased boosting with categorical features, NeurIPS 2018,
    section 3 (target statistics) and the supplement's section B (feature combinations).

    Examples
    --------
    >>> one, none = torch.tensor([[1]]), torch.tensor([0])
    >>> facts = dict(column=one - 1, factor=one, equal=one, compares=one < 0, salt=none, count=none + 2)
    >>> keys = dict(keys=torch.tensor([4, 6]), owner=torch.tensor([0, 0]), place=torch.tensor([1, 0]))
    >>> rows = torch.tensor([[0.25], [0.75], [0.5]])
    >>> statistics = TargetStatistics(rows, **facts, **keys, combination=none, first=none)
    >>> statistics(torch.tensor([[4], [6], [5]])).tolist()
    [[0.75], [0.25], [0.5]]
    """

    KINDS: ClassVar[dict[str, str]] = {"rows": "table"}
    rows: Tensor = learned()  # [sum over k of count + 1, 1]
    # column, factor, equal: int64 [L, P]; a place that a combination does not have has factor 0
    column: Tensor
    factor: Tensor
    equal: Tensor
    compares: Tensor  # bool [L, P], whether a place is a comparison with ``equal``
    # salt, count: int64 [P]; ``count`` is the number of keys of a combination
    salt: Tensor
    count: Tensor
    # keys, owner, place: int64 [N]: all hashes, sorted, the combination that each belongs to, and its number there
    keys: Tensor
    owner: Tensor
    place: Tensor
    combination: Tensor  # int64 [K]
    first: Tensor  # int64 [K]

    def __post_init__(self) -> None:
        self.sparse = False  # whether gradients hold the rows of the batch only; training sets it
        alike = (
            (self.column, self.factor, self.equal, self.compares),
            (self.salt, self.count, self.column[0]),
            (self.keys, self.owner, self.place),
            (self.combination, self.first),
        )
        last = self.count.scatter_reduce(0, self.owner, self.place, "amax")[self.combination] + self.first
        numbers = torch.cat([self.column.flatten(), self.count, self.place, self.combination, self.first])
        same = all(tensor.shape == tensors[0].shape for tensors in alike for tensor in tensors)
        if not same or (numbers < 0).any() or (last >= len(self.rows)).any():
            raise BadFile("statistics whose places are not among their rows")

    @torch.jit.unused
    def values(self, output: int) -> Tensor:
        """Every number that a column of the output can be."""
        first = int(self.first[output])
        return self.rows[first : first + int(self.count[self.combination[output]]) + 1, 0]

    def forward(self, x: Tensor) -> Tensor:
        """int64 [B, m] -> [B, K], in the type of ``rows``."""
        total = self.salt.unsqueeze(0).expand(x.shape[0], -1)
        for place in range(self.column.shape[0]):
            hashes = x.index_select(1, self.column[place])  # [B, P]
            same = (hashes == self.equal[place]).to(torch.int64)
            total = total + torch.where(self.compares[place], same, hashes) * self.factor[place]
        at = torch.searchsorted(self.keys, total.contiguous()).clamp_max(self.keys.shape[0] - 1)
        combinations = torch.arange(self.salt.shape[0], device=x.device)
        stored = (self.keys[at] == total) & (self.owner[at] == combinations)
        row = torch.where(stored, self.place[at], self.count)  # [B, P]
        row = row.index_select(1, self.combination) + self.first  # [B, K]
        return functional.embedding(row, self.rows, sparse=self.sparse).squeeze(2)
