"""Rare categories as missing ones."""

from __future__ import annotations

import math
from typing import Any

from windtunnel.estimators import RareCategories
from windtunnel.translators.conversions import CategoryRecoding
from windtunnel.translators.registry import translates


@translates(
    RareCategories, notes="rare and unseen categories become missing; other columns pass through", differentiable=False
)
def rare_categories(fitted: RareCategories) -> CategoryRecoding:
    """Category -> itself where kept, else missing. Reads ``categories_`` and ``rare_``."""
    kept = [None if categories is None else set(categories) for categories in fitted.categories_]

    def recode(column: int, values: list[Any]) -> list[Any]:
        keep = kept[column]
        return values if keep is None else [value if value in keep else math.nan for value in values]

    known = [
        None if categories is None or rare is None else categories + rare
        for categories, rare in zip(fitted.categories_, fitted.rare_, strict=True)
    ]
    return CategoryRecoding(recode, known)
