"""Where a missing or infinite number of an answer comes from."""

from __future__ import annotations

from typing import NamedTuple


class Finite(NamedTuple):
    """Which input columns an output column is finite with.

    Attributes
    ----------
    columns : tuple of int
        The output is NaN or infinite exactly where one of these is; where it is one column, NaN where that is NaN and
        infinite where it is infinite. Products beyond the largest number are left out of account. Empty where the
        output is always finite.
    kinds : tuple of str
        Of NaN ("nan") and infinity ("inf") those that come through: not the one that is filled or held to a bound.
    sure : bool
        False where all that is known is that the output is finite where all of the columns are.
    """

    columns: tuple[int, ...] = ()
    kinds: tuple[str, ...] = ("nan", "inf")
    sure: bool = True
