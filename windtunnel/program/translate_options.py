"""Options of ``translate``: their checks, for sweeps and configs too, and what is kept of them until trees are soft."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from windtunnel.encode import Rows, count_rows
from windtunnel.errors import BadInput, InvalidOption, warn_caller
from windtunnel.modules.trees.soft.trees import LEVELS

FEWEST_CALIBRATION_ROWS = 20
"""With fewer rows, the 5 % and 95 % quantiles of a column are no more than its two outermost values."""
MAX_CALIBRATION_ROWS = 5000
"""The most training rows that calibrate a translation whose caller gives no calibration rows."""


@dataclass(frozen=True)
class SofteningPlan:
    """How the exact trees of a translation become soft, and what is trainable then."""

    # level, temperature: see ``translate``
    level: str | dict[str, str]
    temperature: float | str
    trainable: tuple[str, ...]  # the parameters of the exact program that are frozen until then

    def __post_init__(self) -> None:
        check_options(level=self.level, temperature=self.temperature)


def check_options(
    level: Any = "L4", start: Any = "warm", temperature: Any = "auto", untranslated: Any = "cache"
) -> None:
    """Raise ``InvalidOption`` that names every option of ``translate`` with a value that is not accepted."""
    wrong = []
    levels = level.values() if isinstance(level, Mapping) else [level]
    wrong += [f"level={name!r}; accepted are {', '.join(LEVELS)}" for name in levels if name not in LEVELS]
    if start not in ("warm", "cold"):
        wrong.append(f"start={start!r}; accepted are 'warm' and 'cold'")
    number = isinstance(temperature, Real) and not isinstance(temperature, bool)
    if temperature != "auto" and not (number and 0 < float(temperature) < math.inf):
        wrong.append(f"temperature={temperature!r}; accepted are 'auto' and finite numbers above 0")
    if untranslated not in ("cache", "stream", "error"):
        wrong.append(f"untranslated={untranslated!r}; accepted are 'cache', 'stream' and 'error'")
    if wrong:
        raise InvalidOption("translate got " + "; ".join(wrong) + ".")


def check_calibration_rows(calibrate: Rows | None) -> None:
    """Raise ``BadInput`` for calibration rows of which there are none, and for rows with targets."""
    if isinstance(calibrate, tuple):
        raise BadInput(f"calibrate= is a tuple of {len(calibrate)}; give raw rows alone: X, without targets")
    if calibrate is not None and count_rows(calibrate) == 0:
        raise BadInput(
            "calibrate= has 0 rows; give a few thousand rows, such as a sample of the training rows, or None."
        )


def warn_of_few_rows(rows: int) -> None:
    """Warn of fewer than ``FEWEST_CALIBRATION_ROWS`` calibration rows, where trees become soft."""
    if rows < FEWEST_CALIBRATION_ROWS:
        warn_caller(
            f"calibrate= has {rows} rows; the scale of a column is its 5 % to 95 % range, which takes "
            f"{FEWEST_CALIBRATION_ROWS} rows at least. Give a few thousand, such as a sample of the training rows.",
        )
