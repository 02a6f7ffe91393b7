"""What Lightning trains: a translation, or a residual model on top of init scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from torch import Tensor, nn

from windtunnel.objectives.metrics import Metric
from windtunnel.program.head import Head
from windtunnel.program.program import Program
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.recipe import Recipe


@dataclass(frozen=True)
class NetToTrain:
    """A module that a training changes, and what the training needs to know about it.

    ``module(numbers [B, n], ids [B, m])`` gives raw scores ``[B, K]``; a residual model takes init scores and codes in
    their place. Gradients are those of the loss divided by ``gradient_scale``.
    """

    module: nn.Module
    head: Head
    metric: Metric  # of the validation
    program: Program | None = None  # that of a translation, whose steps dropout changes; None for a residual model
    gradient_scale: float = 1.0
    initial_weights: Mapping[str, Tensor] | None = None  # of a translation, before any training

    @classmethod
    def of(cls, net: TranslatedPipeline, recipe: Recipe) -> Self:
        """A translation, trained by a recipe."""
        return cls(net, net.head, recipe.metric_for(net), net.program, initial_weights=net.initial_weights)

    @property
    def leaves_parameters_out(self) -> bool:
        """Whether some parameters may get no gradient: those of steps that only one method of the program runs."""
        return self.program is not None and bool(self.program.method_steps)
