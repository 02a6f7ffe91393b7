from __future__ import annotations

import math

import pytest

from windtunnel.program.records.number_text import change_text, estimate_text, value_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.91234567, "0.912346"),
        (25312.5123, "25312.5"),
        (123456.0, "123456"),
        (1.2e-9, "1.20000e-09"),
        (0.0, "0.00000"),
    ],
)
def test_values_have_six_digits(value: float, text: str) -> None:
    assert value_text(value) == text


def test_a_change_has_the_decimals_of_its_standard_error() -> None:
    assert estimate_text(-0.01234, 0.00213) == "-0.0123 ± 0.0021"
    assert estimate_text(-0.037, 0.04) == "-0.037 ± 0.040"
    assert estimate_text(1234567.0, 2345.6) == "+1234567 ± 2346"
    assert estimate_text(3e-12, 1e-12) == "+3.00e-12 ± 1.0e-12"
    assert estimate_text(0.5, math.inf) == "+0.500 ± inf"
    assert change_text(-0.0) == "+0.00" and change_text(123.0) == "+123"
