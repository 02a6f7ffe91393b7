"""The two-hot encoder."""

from __future__ import annotations

import math

from windtunnel.estimators import TwoHotEncoder
from windtunnel.translators.categories.sklearn_encoders import plain_categories
from windtunnel.translators.conversions import CategoryEncoding
from windtunnel.translators.registry import translates


@translates(TwoHotEncoder, trainable="one row of a table per category", notes="missing categories are all zeros")
def two_hot(fitted: TwoHotEncoder) -> CategoryEncoding:
    """Category -> two one-hots, a row of a table. Reads ``categories_`` and ``handle_unknown``."""
    # Missing values are accepted whatever handle_unknown says.
    known = [
        None if categories is None else plain_categories(fitted, column, [*categories, math.nan])
        for column, categories in enumerate(fitted.categories_)
    ]
    return CategoryEncoding(known, rejects_unknown=fitted.handle_unknown == "error")
