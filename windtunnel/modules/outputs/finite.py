"""The input columns that make an output column non-finite."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Finite:
    """The inputs whose NaN or infinity makes an output column non-finite.

    Compared by identity: one object may stand for many output columns and list as many input columns, and comparing
    these lists for every output would take quadratic time.
    """

    columns: tuple[int, ...] = ()
    """The output is NaN or infinite exactly where one of these is; where it is one column, NaN where that is NaN and
    infinite where it is infinite. Products beyond the largest number are left out of account. Empty where the output
    is always finite."""
    kinds: tuple[str, ...] = ("nan", "inf")  # those that come through: not the one that is filled or clipped
    sure: bool = True  # False if the output may be finite although one of the columns is not
