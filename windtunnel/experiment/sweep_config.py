"""The section ``sweep`` of a config file."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from windtunnel.sweeps.space import Space


class SweepConfig(BaseModel):
    """The arguments of ``windtunnel.sweep`` that a file gives; recipe, level, start and temperature have sections.

    Attributes
    ----------
    space : dict or None
        Name to a list, a mapping of low, high, log and step, or a fixed value; None is the default space.
    trials : int
        How many in all, with those of earlier runs.
    timeout : float or None
        Seconds after which no further trial is begun.
    storage : str or None
        A URL; None is ``sweep.db`` in the output folder.
    study_name : str
    objectives : ["metric"] or ["metric", "inference_cost"]
    seed, jobs : int
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    space: dict[str, Any] | None = None
    trials: int = Field(default=50, ge=1)
    timeout: float | None = Field(default=None, gt=0)
    storage: str | None = None
    study_name: str = "sweep"
    objectives: tuple[Literal["metric", "inference_cost"], ...] = ("metric",)
    seed: int = Field(default=0, ge=0)
    jobs: int = Field(default=1, ge=1)

    @field_validator("space")
    @classmethod
    def _a_space(cls, given: dict[str, Any] | None) -> dict[str, Any] | None:
        if given is not None:
            Space.of(given)
        return given
