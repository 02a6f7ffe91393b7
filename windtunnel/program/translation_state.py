"""What a translation runs at one time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windtunnel.modules.base import Module
from windtunnel.program.head import Head
from windtunnel.program.initial_weights import InitialWeights
from windtunnel.program.program import Program
from windtunnel.program.records.fidelity import CalibrationRows
from windtunnel.program.records.origin import Origin
from windtunnel.program.records.records import Records
from windtunnel.program.records.strategy_choice import StrategyChoice
from windtunnel.program.translate_options import SofteningPlan


@dataclass(frozen=True)
class TranslationState:
    """What a translation runs, and how it may become soft, for ``TranslatedPipeline.restore``.

    The attributes are those of ``TranslatedPipeline``. Modules are not copied, so weights that are trained afterwards
    stay.
    """

    program: Program
    modules: Sequence[Module]  # of the program steps
    head: Head
    origins: Sequence[Origin]
    exact_modules: Mapping[int, Module]
    softening: SofteningPlan | None
    calibration: CalibrationRows | None
    initial_weights: InitialWeights
    records: Records
    strategy_choices: Sequence[StrategyChoice]

    def install(self, net: Any) -> None:
        """Let a ``TranslatedPipeline`` run what it ran at the time of this state."""
        net.restore(self)
