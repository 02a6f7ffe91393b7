"""scikit-learn's encoders of categories."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, TargetEncoder

from windtunnel.encode.columns import is_missing
from windtunnel.errors import UnsupportedEstimator
from windtunnel.translators.conversions import CategoryEncoding
from windtunnel.translators.registry import translates


@translates(
    OneHotEncoder,
    trainable="one row of a table per category; of more than 2,000 categories only in front of weighted sums",
    notes="drop, infrequent categories, unknown and missing ones",
)
def one_hot_encoder(fitted: OneHotEncoder) -> CategoryEncoding:
    """Category -> one-hot. Reads categories_ and handle_unknown."""
    return CategoryEncoding(_vocabularies(fitted), rejects_unknown=fitted.handle_unknown == "error")


@translates(
    OrdinalEncoder,
    trainable="one number per category",
    notes="missing and unknown values as the source has them; codes that a tree looks up are not trained",
)
def ordinal_encoder(fitted: OrdinalEncoder) -> CategoryEncoding:
    """Category -> code. Reads categories_ and handle_unknown."""
    return CategoryEncoding(_vocabularies(fitted), rejects_unknown=fitted.handle_unknown == "error")


@translates(
    TargetEncoder,
    trainable="one row of a table per category",
    notes="as transform has it, not the cross-fitted fit_transform; binary, multiclass and continuous targets",
)
def target_encoder(fitted: TargetEncoder) -> CategoryEncoding:
    """Category -> smoothed mean of the target, of each class beyond two. Reads categories_."""
    return CategoryEncoding(_vocabularies(fitted))


def _vocabularies(fitted: OneHotEncoder | OrdinalEncoder | TargetEncoder) -> list[list[Any]]:
    return [plain_categories(fitted, column, known) for column, known in enumerate(fitted.categories_)]


def plain_categories(fitted: Any, column: Any, categories: Iterable[Any]) -> list[Any]:
    """Check that the categories of a column are str, int, float, bool or one missing value; as Python values."""
    times = np.datetime64, np.timedelta64  # whose items may be whole numbers
    plain = [
        value.item() if isinstance(value, np.generic) and not isinstance(value, times) else value
        for value in categories
    ]
    strange = sorted({type(value).__name__ for value in plain if not isinstance(value, str | int | float | None)})
    # None and NaN alike become the one missing id of a column.
    if sum(is_missing(value) for value in plain if isinstance(value, float | None)) > 1:
        strange.append("None beside NaN")
    if strange:
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} has categories of type {', '.join(strange)} in its input column {column!r}; "
            "text, numbers, booleans and one kind of missing value can be translated: convert that column and fit again"
        )
    return plain
