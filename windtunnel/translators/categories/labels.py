"""scikit-learn's encoders of labels, which read a sequence and no table."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from sklearn.preprocessing import LabelBinarizer, LabelEncoder, MultiLabelBinarizer

from windtunnel.encode.columns import is_missing
from windtunnel.encode.vocabulary import EXACT_INTEGERS
from windtunnel.errors import UnsupportedEstimator
from windtunnel.translators.categories.sklearn_encoders import plain_categories
from windtunnel.translators.conversions import CategoryEncoding, TokenCounts
from windtunnel.translators.registry import translates


@translates(
    LabelEncoder,
    notes="unseen labels are rejected, also those that the source cuts to the type of its classes (1.5 to 1); None and "
    "NaN are one missing label",
    differentiable=False,
)
def label_encoder(fitted: LabelEncoder) -> CategoryEncoding:
    """Label -> its position in classes_, int64 [B]. Reads classes_."""
    classes = _classes(fitted)
    # The encoder itself is not asked what it rejects: it casts labels to the type of classes_ first, and finds in a
    # class "unk" what was "unknown".
    listed = any(map(is_missing, classes))
    codes = {"trainable": False, "flat": True, "dtype": "int64"}
    return CategoryEncoding([classes], rejects_unknown=True, rejects_missing=not listed, **codes)  # type: ignore[arg-type]


@translates(
    LabelBinarizer,
    trainable="one row of a table per label",
    notes="int64 for labels of any type; unseen labels are rejected where there are fewer than three classes",
)
def label_binarizer(fitted: LabelBinarizer) -> CategoryEncoding:
    """Label -> pos_label at its class, neg_label at others; a column of two classes. Reads classes_ and y_type_."""
    if fitted.y_type_.startswith("multilabel"):
        raise UnsupportedEstimator(
            "LabelBinarizer was fitted on a matrix of indicators, which are no labels to binarize; "
            "one that was fitted on a sequence of labels can be translated."
        )
    classes = _classes(fitted)
    # Of one or two classes, how many columns there are depends on how many different labels are asked about together.
    return CategoryEncoding(
        [classes],
        rejects_unknown=len(classes) < 3,
        rejects_missing=True,
        rejects_fractions=not any(isinstance(label, str) for label in classes),
        flat=True,
        dtype="int64",
    )


@translates(
    MultiLabelBinarizer,
    notes="sets of labels are read on the host; a text in the place of a set is rejected",
    differentiable=False,
)
def multi_label_binarizer(fitted: MultiLabelBinarizer) -> TokenCounts:
    """Set of labels -> 1 at each label in it, 0 at others. Reads classes_."""
    binarizer = copy.copy(fitted)  # it keeps an index of its classes once it is asked

    def indicators(rows: Iterable[Any]) -> Any:
        # The source would take a text for the set of its letters, which a column of texts was not meant to be.
        if texts := [row for row in rows if isinstance(row, str)]:
            raise TypeError(f"{texts[0]!r} is a text and no set of labels; give a list, a tuple or a set for each row")
        return binarizer.transform(rows)

    return TokenCounts(indicators, len(fitted.classes_), dtype="int64")


def _classes(fitted: LabelEncoder | LabelBinarizer) -> list[Any]:
    classes = plain_categories(fitted, 0, fitted.classes_)
    large = [label for label in classes if isinstance(label, int) and abs(label) > EXACT_INTEGERS]
    if large:
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} has the label {large[0]}; integers beyond 2**53 are not told apart as numbers: "
            "fit it on their texts."
        )
    return classes
