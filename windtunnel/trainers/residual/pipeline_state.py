"""A pipeline to put into a translation, below residual models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from windtunnel.compiler.strategies import use_fastest_forms
from windtunnel.modules.base import Module
from windtunnel.program.head import Head
from windtunnel.program.program import Program
from windtunnel.program.records.fidelity import CalibrationRows
from windtunnel.program.records.origin import Origin
from windtunnel.program.translate_options import SofteningPlan
from windtunnel.program.translated import TranslatedPipeline


@dataclass(frozen=True)
class PipelineState:
    """A pipeline to put into a translation: its program, exact modules and head.

    With a softening plan its trees may become soft later.
    """

    program: Program
    # By position, modules to put into the program: exact trees in place of soft ones, trees with tree-block weights.
    modules: Mapping[int, Module]
    head: Head
    softening: SofteningPlan | None = None
    calibration: CalibrationRows | None = None

    @classmethod
    def source(cls, net: TranslatedPipeline) -> PipelineState:
        """The pipeline of a translation with its exact trees, which may become soft again."""
        return cls(net.program, dict(net.exact_modules), net.head, net.softening, net.calibration)

    def exact_program(self) -> Program:
        """The program with the exact modules, in eval mode."""
        return self.program.with_modules(self.modules).eval()

    def install(self, net: TranslatedPipeline) -> None:
        """Give a translation this pipeline, without anything to train."""
        program = self.program.with_modules(self.modules)  # another one, as steps of residual models follow
        net.replace_program(program, origins=_origins(net, program), head=self.head)
        if self.modules:
            use_fastest_forms(net)
        net.finish_softening()
        net.program.requires_grad_(False)
        net.mark_initial_weights()
        if self.softening is not None:
            net.defer_softening(self.softening, self.calibration)
        net.eval()


def _origins(net: TranslatedPipeline, program: Program) -> list[Origin]:
    """The origins of the steps of a program, which begins as that of the net does."""
    by_name = {origin.name: origin for origin in net.origins}
    added = [by_name.get(step.name, Origin(step.name, "")) for step in program.steps[len(net.origins) :]]
    return [*net.origins[: len(program.steps)], *added]
