"""How long a training run is: its intervals, each of which ends with a validation."""

from __future__ import annotations

import math
from dataclasses import dataclass

from windtunnel.errors import BadInput
from windtunnel.trainers.data.encoded_loader import EncodedLoader
from windtunnel.trainers.recipe import Recipe


@dataclass(frozen=True)
class TrainingPlan:
    """The length of a training run."""

    epochs: int | None  # the most intervals, which are Lightning's epochs; None for no limit
    interval_steps: int | None = None  # steps of an interval; None where an interval is a pass over the rows

    @classmethod
    def of(cls, recipe: Recipe, loader: EncodedLoader, processes: int = 1) -> TrainingPlan:
        """The plan of a recipe; ``BadInput`` if steps have to be counted in passes of a loader without a length."""
        interval, steps = recipe.val_check_interval, recipe.max_steps
        if interval is None and steps is None:
            return cls(recipe.epochs)
        if interval is None or recipe.epochs is not None:
            pass_steps = _steps_of_pass(loader, processes)
            limits = [steps, None if recipe.epochs is None else recipe.epochs * pass_steps]
            steps = min(limit for limit in limits if limit is not None)
            interval = interval or pass_steps
        assert steps is not None  # a recipe has epochs or max_steps
        interval = min(interval, steps)
        return cls(math.ceil(steps / interval), interval)

    @property
    def steps(self) -> int | None:
        """The most steps; None where they are not known before the rows are read."""
        return None if self.interval_steps is None or self.epochs is None else self.epochs * self.interval_steps

    def limit(self) -> str:
        """The latest end of training, such as "20 epochs"."""
        return f"{self.epochs} epochs" if self.steps is None else f"{self.steps:,} steps"


def _steps_of_pass(loader: EncodedLoader, processes: int) -> int:
    try:
        return loader.steps_of_process(processes)
    except TypeError as error:
        raise BadInput(
            "the training loader has no len(), so that its passes cannot be counted in steps: give max_steps with "
            "val_check_interval, epochs alone, or a loader that has a len()"
        ) from error
