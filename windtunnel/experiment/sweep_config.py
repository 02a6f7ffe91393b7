"""The section ``sweep`` of a config file."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from pydantic import field_validator

from windtunnel.api.sweep import check_option
from windtunnel.sweeps.settings import SweepOptions
from windtunnel.sweeps.space import parse_space


class SweepConfig(SweepOptions):
    """Arguments of ``windtunnel.sweep``; recipe, level, start and temperature have sections of their own.

    ``storage`` is ``sweep.db`` in the output folder by default.
    """

    storage: str | None = None
    space: dict[str, Any] | None = None

    @field_validator("space")
    @classmethod
    def _valid_space(cls, space: dict[str, Any] | None) -> dict[str, Any] | None:
        if space is not None and find_spec("optuna") is not None:
            parse_space(space, check_option)
        return space
