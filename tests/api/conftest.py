"""The linear translation and its rows."""

from __future__ import annotations

import pandas as pd
import pytest
from linear_case import FRAME, linear

import windtunnel


@pytest.fixture
def net() -> windtunnel.Translation:
    """A city that rejects unknown categories, two scaled numbers, a logistic regression."""
    return windtunnel.translate(linear())


@pytest.fixture
def rows() -> pd.DataFrame:
    return FRAME[["age", "income", "city"]].copy()
