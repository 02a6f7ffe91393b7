"""Which features of a boosted residual are what."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FeatureLayout:
    """Target statistics and row counts, then codes of numbers, then codes of categories."""

    statistics: list[int]  # how many values each target statistic and row count has
    sizes: list[int]  # the number of codes of each column, numbers before categories
    numbers: int  # how many columns are numbers

    @property
    def numeric(self) -> int:
        """How many features are used as numbers, the first ones: all but codes of categories."""
        return len(self.statistics) + self.numbers

    @property
    def codes(self) -> range:
        """The positions of the codes of all columns, the last features."""
        return range(len(self.statistics), len(self.statistics) + len(self.sizes))

    @property
    def largest(self) -> list[int]:
        """The largest number that each feature can be."""
        return [count - 1 for count in (*self.statistics, *self.sizes)]
