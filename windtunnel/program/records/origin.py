"""The source step behind a program step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Origin:
    """Path and class of the source step that a program step comes from."""

    name: str
    estimator: str
