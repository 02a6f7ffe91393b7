"""Soft trees for inference: all that is constant folded into two matrices per tree, in slices that stay cached."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from typing import ClassVar, Final

import torch
from torch import Tensor

from windtunnel.modules.base import Module
from windtunnel.modules.trees.ensemble import MISSING_NAN, MISSING_ZERO
from windtunnel.modules.trees.soft.settled import category_codes


class CondensedTrees(Module):
    """Scores of soft trees as sums of sigmoids, as ``tanh(y) = 2 sigmoid(2 y) - 1``; nothing trains.

    unit = sigmoid(first . (z, 1)),  leaf = sigmoid(second . unit),  score = base + leaf . value

    Slopes, thresholds, masks and the -1 and +1 of the network are in the matrices. Each tree has one unit that is
    always 1, whose weights in the second layer are the biases. Trees of like size stand in groups, padded to the
    largest of their own group. A node that reads one column has its ``gain`` instead of a row of ``first``.

    Shape
    -----
    float32 [B, width] -> float32 [B, K]

    Parameters
    ----------
    center, scale, bound : Tensor
        [width], [width], [2, width]: z = (x - center) / scale, kept within the bounds; 0 where a value is missing.
    first : Tensor
        [U, width + 1], or [0, width + 1] where units gather.
    column, gain, shift : Tensor
        int64 [U], [U, 1], [U, 1]: sigmoid(gain z[column] + shift); the column of a unit also tells what it may miss.
    second : Tensor
        Flat, group after group [G, l, n]; float32 or bfloat16.
    value, base : Tensor
        [L, K], [K], in the unit of the raw score.
    missing, right : Tensor
        int8 [U, 1], see ``TreeEnsemble``; [U, 1], infinitely far to where a missing value goes.
    category_unit, category_column, category_table : Tensor
        int64 [c], int64 [c], [c, V + 2], the last two columns for unknown and for missing categories.
    trees, units, leaves, categories : list of int
        Of each group: trees; units and leaves of a tree; units that look up a category.
    """

    FACTS: ClassVar[tuple[str, ...]] = ("trees", "units", "leaves", "categories")
    NAN: Final = MISSING_NAN
    ZERO: Final = MISSING_ZERO
    # The sigmoid of what is farther is 0 or 1 to float32, and takes some processors ten times as long.
    FAR: Final = 60.0
    # On a CPU, rows worked on at once; more leave the cache (measured).
    ROWS: Final = 2048
    center: Tensor
    scale: Tensor
    bound: Tensor
    first: Tensor
    column: Tensor
    gain: Tensor
    shift: Tensor
    second: Tensor
    value: Tensor
    base: Tensor
    missing: Tensor
    right: Tensor
    category_unit: Tensor
    category_column: Tensor
    category_table: Tensor
    trees: list[int]
    units: list[int]
    leaves: list[int]
    categories: list[int]

    def __init__(
        self,
        center: Tensor,
        scale: Tensor,
        bound: Tensor,
        first: Tensor,
        column: Tensor,
        gain: Tensor,
        shift: Tensor,
        second: Tensor,
        value: Tensor,
        base: Tensor,
        missing: Tensor,
        right: Tensor,
        category_unit: Tensor,
        category_column: Tensor,
        category_table: Tensor,
        trees: list[int],
        units: list[int],
        leaves: list[int],
        categories: list[int],
    ) -> None:
        super().__init__()
        for name, fact in (
            ("center", center), ("scale", scale), ("bound", bound), ("first", first), ("column", column),
            ("gain", gain), ("shift", shift), ("second", second), ("value", value), ("base", base),
            ("missing", missing), ("right", right), ("category_unit", category_unit),
            ("category_column", category_column), ("category_table", category_table),
        ):  # fmt: skip
            self.register_buffer(name, fact)
        self.trees, self.units, self.leaves = list(trees), list(units), list(leaves)
        self.categories = list(categories)
        self.gathers = first.shape[0] == 0
        self.any_zero_missing = bool((missing == MISSING_ZERO).any())
        self.any_missing = bool((missing == MISSING_NAN).any())

    def forward(self, x: Tensor) -> Tensor:
        """Raw scores ``[B, K]``."""
        z = (torch.where(torch.isnan(x), torch.zeros_like(x), x) - self.center) / self.scale
        z = torch.minimum(torch.maximum(z, self.bound[0]), self.bound[1])
        z = torch.cat([z, torch.ones([x.shape[0], 1], dtype=x.dtype, device=x.device)], dim=1)
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            if torch.compiler.is_compiling():
                return self._scores(x, z)
        if x.shape[0] <= self.ROWS or x.is_cuda:
            return self._in_blocks(x, z, max(x.shape[0], 1))
        return self._in_blocks(x, z, self.ROWS)

    def _scores(self, x: Tensor, z: Tensor) -> Tensor:
        """For programs that are exported, whose compiler does the blocking; ``_in_blocks`` is the same otherwise."""
        rows, given = z.t(), x.t()
        scores = self.base.unsqueeze(1).expand(self.base.shape[0], x.shape[0])
        unit, weight, leaf, entry = 0, 0, 0, 0
        for group in range(len(self.trees)):
            trees, units, leaves, sets = (
                self.trees[group],
                self.units[group],
                self.leaves[group],
                self.categories[group],
            )
            if self.gathers:
                pre = rows.index_select(0, self.column[unit : unit + trees * units])
                pre = pre * self.gain[unit : unit + trees * units] + self.shift[unit : unit + trees * units]
            else:
                pre = torch.mm(self.first[unit : unit + trees * units], rows)
            active = self._sigmoid(self._settled(pre, given, unit, entry, entry + sets)).to(self.second.dtype)
            second = self.second[weight : weight + trees * leaves * units].view(trees, leaves, units)
            reach = self._sigmoid(torch.bmm(second, active.view(trees, units, -1)).to(z.dtype)).view(trees * leaves, -1)
            scores = scores + torch.mm(self.value[leaf : leaf + trees * leaves].t(), reach)
            unit, weight, leaf = unit + trees * units, weight + trees * leaves * units, leaf + trees * leaves
            entry += sets
        return scores.t()

    def _in_blocks(self, x: Tensor, z: Tensor, at_once: int) -> Tensor:
        """Slices of rows in blocks of memory that every group writes anew: fresh ones cost more than the arithmetic."""
        scores = self.base.repeat(x.shape[0], 1)
        if len(self.trees) == 0:
            return scores
        most_units = max([trees * units for trees, units in zip(self.trees, self.units)])  # noqa: B905  as above
        most_leaves = max([trees * leaves for trees, leaves in zip(self.trees, self.leaves)])  # noqa: B905
        units_block = torch.empty(most_units * at_once, dtype=z.dtype, device=x.device)
        leaves_block = torch.empty(most_leaves * at_once, dtype=z.dtype, device=x.device)
        rounds = self.second.dtype != z.dtype
        active_block = units_block.to(self.second.dtype) if rounds else units_block
        reach_block = leaves_block.to(self.second.dtype) if rounds else leaves_block
        for start in range(0, x.shape[0], at_once):
            count = min(at_once, x.shape[0] - start)
            rows, given = z[start : start + count].t().contiguous(), x[start : start + count].t().contiguous()
            out = torch.zeros([self.base.shape[0], count], dtype=z.dtype, device=x.device)
            unit, weight, leaf, entry = 0, 0, 0, 0
            for group in range(len(self.trees)):
                trees, units, leaves = self.trees[group], self.units[group], self.leaves[group]
                end, sets = unit + trees * units, self.categories[group]
                pre = units_block[: trees * units * count].view(trees * units, count)
                if self.gathers:
                    torch.index_select(rows, 0, self.column[unit:end], out=pre)
                    torch.addcmul(self.shift[unit:end], pre, self.gain[unit:end], out=pre)
                else:
                    torch.mm(self.first[unit:end], rows, out=pre)
                pre = self._sigmoid(self._settled(pre, given, unit, entry, entry + sets))
                active = active_block[: trees * units * count].view(trees, units, count)
                if rounds:
                    active.copy_(pre.view(trees, units, count))
                else:
                    active = pre.view(trees, units, count)
                second = self.second[weight : weight + trees * leaves * units].view(trees, leaves, units)
                reached = reach_block[: trees * leaves * count].view(trees, leaves, count)
                torch.bmm(second, active, out=reached)
                reach = leaves_block[: trees * leaves * count].view(trees * leaves, count)
                if rounds:
                    reach.copy_(reached.view(trees * leaves, count))
                out.addmm_(self.value[leaf : leaf + trees * leaves].t(), self._sigmoid(reach))
                unit, weight, leaf = end, weight + trees * leaves * units, leaf + trees * leaves
                entry += sets
            scores[start : start + count] += out.t()
        return scores

    def _sigmoid(self, pre: Tensor) -> Tensor:
        return pre.clamp_(-self.FAR, self.FAR).sigmoid_()

    def _settled(self, pre: Tensor, given: Tensor, start: int, first: int, last: int) -> Tensor:
        """With the units that do not compare: infinitely far where a value is missing, the entry of a category."""
        if self.any_missing or self.any_zero_missing:
            column, kind = self.column[start : start + pre.shape[0]], self.missing[start : start + pre.shape[0]]
            unknown = torch.isnan(given)
            gone = unknown.index_select(0, column) & (kind == self.NAN)
            if self.any_zero_missing:
                near_zero = (given.abs() <= 1e-35) | unknown
                gone = gone | (near_zero.index_select(0, column) & (kind == self.ZERO))
            pre = torch.where(gone, self.right[start : start + pre.shape[0]], pre)
        if last > first:
            pre = self._looked_up(pre, given, start, first, last)
        return pre

    def _looked_up(self, pre: Tensor, given: Tensor, start: int, first: int, last: int) -> Tensor:
        """With the entries of the tables at the units that look one up."""
        table, column = self.category_table[first:last], given.index_select(0, self.category_column[first:last])
        entries = table.gather(1, category_codes(column, table.shape[1] - 2))
        return pre.index_copy(0, self.category_unit[first:last] - start, entries)
