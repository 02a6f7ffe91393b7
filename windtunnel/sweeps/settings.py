"""The settings of a sweep, checked by pydantic."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

OBJECTIVES = (("metric",), ("metric", "inference_cost"))
BEST = "best.windtunnel"
"""The file with the best model, in the folder of a sweep."""
EXAMPLES = {"pruner": "optuna.pruners.MedianPruner()", "sampler": "optuna.samplers.TPESampler(seed=0)"}


class SweepOptions(BaseModel):
    """The arguments of ``windtunnel.sweep`` that a config file may also hold; see there."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    trials: int = Field(default=50, ge=1, strict=True)
    timeout: float | None = Field(default=None, gt=0, strict=True)
    storage: Any = None
    study_name: str = "sweep"
    objectives: Sequence[str] = ("metric",)
    seed: int = Field(default=0, ge=0, strict=True)
    jobs: int = Field(default=1, ge=1, strict=True)

    @field_validator("objectives", mode="before")
    @classmethod
    def _accepted_objectives(cls, objectives: Any) -> Any:
        if isinstance(objectives, str) or tuple(objectives) not in OBJECTIVES:
            raise ValueError("accepted are ('metric',) and ('metric', 'inference_cost')")
        return objectives


class Settings(SweepOptions):
    """All arguments of a sweep, and the functions of the public API that it calls; each worker process gets them."""

    # translate, load: ``windtunnel.translate`` and ``windtunnel.load``
    translate: Callable[..., Any]
    load: Callable[..., Any]
    pipeline: Any
    train: Any
    valid: Any
    calibrate: Any
    space: Any
    recipe: Any
    recipe_options: dict[str, Any]  # ``joint=False``, and the metric if it is not the recipe's
    translate_options: dict[str, Any]  # level, start, temperature and untranslated, where the space does not name them
    folder: str | Path | None
    pruner: Any
    sampler: Any
    accelerator: str
    progress: bool
    # ``time.monotonic()``, which is the same clock in all processes of a machine
    started: float = Field(default_factory=time.monotonic)

    @property
    def deadline(self) -> float:
        """The time of ``time.monotonic`` from which no trial begins."""
        return float("inf") if self.timeout is None else self.started + self.timeout

    @field_validator("folder", mode="plain")
    @classmethod
    def _path(cls, folder: Any) -> Path | None:
        if not isinstance(folder, str | Path | None):
            raise ValueError("give a path, or None")
        return Path(folder) if folder else None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.jobs > 1 and (not isinstance(self.storage, str) or self.storage in ("sqlite://", "sqlite:///:memory:")):
            raise ValueError(
                f"jobs={self.jobs} with storage={self.storage!r}: processes share their trials by a URL such as "
                "sqlite:///sweep.db"
            )
        if len(self.objectives) > 1 and self.pruner is not None:
            raise ValueError("two objectives with a pruner: only trials of one objective can be pruned; leave it out")
        for name, value, method in (("pruner", self.pruner, "prune"), ("sampler", self.sampler, "sample_relative")):
            if value is not None and (isinstance(value, type) or not hasattr(value, method)):
                raise ValueError(f"{name}={value!r}: give an object of optuna, such as {EXAMPLES[name]}")
        return self
