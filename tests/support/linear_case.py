"""A linear pipeline over a city that rejects unknown categories and two scaled numbers; its rows and targets."""

from __future__ import annotations

from typing import Any

import pytest
from case import columns, logistic, table, targets
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

FRAME = table()
Y = targets(FRAME)
QUICK: dict[str, Any] = {"epochs": 2, "batch_size": 64, "progress": False, "accelerator": "cpu"}


def says(error: pytest.ExceptionInfo[Exception], text: str) -> None:
    """The whole message, with one ``...`` where wording of other libraries comes in."""
    first, _, last = text.partition("...")
    message = str(error.value)
    assert message == text or ("..." in text and message.startswith(first) and message.endswith(last)), message


def linear() -> Any:
    return make_pipeline(
        columns((OneHotEncoder(), ["city"]), (StandardScaler(), ["age", "income"]), sparse_threshold=0), logistic()
    ).fit(FRAME[["age", "income", "city"]], Y["label"])


READS = "The pipeline reads 'age', 'income', 'city'; rename or add the missing ones."
