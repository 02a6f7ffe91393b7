"""Where a program has its residual models: the steps that ``fit`` and ``refresh`` append to a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from windtunnel.modules.linear.residual_model import ResidualModel, ResidualSum
from windtunnel.modules.tables.cell_statistics import CellStatistics
from windtunnel.program.program import IDS, NUMBERS, Program, position_of
from windtunnel.program.score_methods import program_before


@dataclass(frozen=True)
class BoostedSteps:
    """The positions of the steps of a boosted residual: target statistics, trees, network."""

    statistics: int
    trees: int
    network: int  # of its layers
    weight: float  # of the pipeline's scores in the sum with those of trees and network

    @classmethod
    def of(cls, total: Any, steps: Sequence[Any]) -> BoostedSteps | None:
        """The steps whose scores the step ``total`` adds to those of a pipeline; None if it adds others."""
        both = steps[_added(total)]
        if not isinstance(both.module, ResidualSum):
            return None
        trees, network = _summand(both), _added(both)
        statistics = _summand(steps[trees])
        if not _reads_rows(steps[statistics], CellStatistics):
            return None
        return cls(statistics, trees, network, total.module.weight)


@dataclass(frozen=True)
class InstalledResiduals:
    """The residual models that a program ends in.

    A program has, in this order, the steps of

    1. the pipeline,
    2. the boosted residual: target statistics, trees, a network, the sum of the scores of the last two, and the sum of
       that with ``weight`` times the pipeline's scores,
    3. the residual model, and the sum of its scores with those before.

    The second and the third part are missing where ``fit`` kept none. Those of a translation behind other steps belong
    to the first part. ``trainers.residual.installation`` appends them.
    """

    pipeline: int  # the position of the step that gives the pipeline's scores
    boosted: BoostedSteps | None
    residual: int | None  # the position of the residual model

    @classmethod
    def of(cls, program: Program) -> InstalledResiduals:
        """Those of a program."""
        steps: Any = program.steps
        boosted, residual, last = None, None, len(steps) - 1
        if isinstance(steps[last].module, ResidualSum) and _reads_rows(steps[_added(steps[last])], ResidualModel):
            residual, last = _added(steps[last]), _summand(steps[last])
        if isinstance(steps[last].module, ResidualSum):
            boosted = BoostedSteps.of(steps[last], steps)
            last = last if boosted is None else _summand(steps[last])
        return cls(last, boosted, residual)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return self.boosted is not None or self.residual is not None

    @property
    def pipeline_weight(self) -> float:
        """The weight of the pipeline's scores in the raw scores."""
        return 1.0 if self.boosted is None else self.boosted.weight


def _reads_rows(step: Any, module: type) -> bool:
    """Whether a step has such a module and reads encoded rows; behind other steps it reads what these compute."""
    return isinstance(step.module, module) and all(take.slot in (NUMBERS, IDS) for take in step.takes)


def _summand(step: Any) -> int:
    """The position of the step that a step reads first: of a sum, the scores that it adds others to."""
    return position_of(step.takes[0].slot)


def _added(step: Any) -> int:
    """The position of the step whose scores a sum adds."""
    return position_of(step.takes[len(step.takes) - 1].slot)


def without_residuals(program: Program) -> Program | None:
    """The pipeline of a program with residual models; None for a program without any."""
    installed = InstalledResiduals.of(program)
    return program_before(program, installed.pipeline + 1) if installed else None
