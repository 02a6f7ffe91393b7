"""Checks the numeric options of estimators when they are fitted."""

from __future__ import annotations

from math import isfinite
from typing import Any

from windtunnel.errors import InvalidOption, is_whole_number


def check_options(estimator: Any, whole: dict[str, int], *, optional: tuple[str, ...] = ()) -> None:
    """Raise ``InvalidOption`` that names every wrong option.

    ``whole`` has the least value of whole numbers; those in ``optional`` may be None. ``learning_rate`` must be above
    0, ``regularization`` at least 0.
    """
    wrong = []
    for name, least in whole.items():
        value = getattr(estimator, name)
        if value is None and name in optional:
            continue
        if not is_whole_number(value, least):
            wrong.append(
                f"{name}={value!r}; give a whole number from {least} up" + (", or None" if name in optional else "")
            )
    rate, decay = estimator.learning_rate, estimator.regularization
    if not (rate > 0 and isfinite(rate)):
        wrong.append(f"learning_rate={rate!r}; give a number above 0")
    if not (decay >= 0 and isfinite(decay)):
        wrong.append(f"regularization={decay!r}; give a number from 0 up")
    if wrong:
        raise InvalidOption(". ".join(wrong))
