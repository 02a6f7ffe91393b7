"""The input columns that make an output column non-finite."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Finite:
    """The input columns that an output column is finite with.

    One object may stand for many output columns and name as many input columns, so it is told by identity: to compare
    or hash what it names for each of them would take the square of the columns.
    """

    columns: tuple[int, ...] = ()
    """The output is NaN or infinite exactly where one of these is; where it is one column, NaN where that is NaN and
    infinite where it is infinite. Products beyond the largest number are left out of account. Empty where the output
    is always finite."""
    kinds: tuple[str, ...] = ("nan", "inf")  # those that come through: not the one that is filled or clipped
    sure: bool = True  # False if the output may be finite although one of the columns is not
