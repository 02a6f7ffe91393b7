"""Installation of a selected pipeline and residual models into a translation.

``InstalledResiduals`` describes the order of the steps.
"""

from __future__ import annotations

from typing import Any

import torch

from windtunnel.compiler.strategies import use_fastest_forms
from windtunnel.modules.linear.residual_model import ResidualSum
from windtunnel.program.installed_residuals import InstalledResiduals
from windtunnel.program.program import IDS, NUMBERS, ProgramStep, Take, last_slot
from windtunnel.program.records.origin import Origin
from windtunnel.program.residual_base import STEP_NAME
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.residual.boosted.fit_boosted import BoostedResidual
from windtunnel.trainers.residual.init_scores import ResidualInputs
from windtunnel.trainers.residual.residual_stages import InstallableResidual


def install_residual(net: TranslatedPipeline, residual: InstallableResidual) -> None:
    """Append a residual model to an installed pipeline: its scores, and their sum with those of the pipeline."""
    model = residual.model
    scores = _last(net, len(model.unit))
    _append(net, model, _takes(residual.inputs))
    _append(net, ResidualSum(), [scores, _last(net, scores.count)])
    model.cast(getattr(torch, net.encoder.dtype))
    model.requires_grad_()
    mark_initial_residual_weights(net)
    net.eval()


def mark_initial_residual_weights(net: TranslatedPipeline) -> None:
    """Take the present weights as the initial ones, and 0 for those of the residual model that the program ends in."""
    net.mark_initial_weights()
    position = InstalledResiduals.of(net.program).residual
    assert position is not None  # the caller has installed one
    for name in ("weight", "factors", "cross"):
        net.initial_weights.set_zero(f"steps.{position}.module.{name}")


def install_boosted(net: TranslatedPipeline, boosted: BoostedResidual) -> None:
    """Append a boosted residual: target statistics, trees, a network, and the weighted mean with the scores before.

    It goes before a residual model, whose scores the caller multiplies by ``boosted.weight``.
    """
    scores = _last(net, boosted.trees.outputs)
    _append(net, boosted.statistics, _takes(boosted.inputs))
    features = _last(net, boosted.trees.width)
    _append(net, boosted.trees, [features])
    of_trees = _last(net, scores.count)
    _append(net, boosted.network, [features])
    _append(net, ResidualSum(), [of_trees, _last(net, scores.count)])
    _append(net, ResidualSum(boosted.weight), [scores, _last(net, scores.count)])
    for module in (boosted.statistics, boosted.trees, boosted.network):
        module.cast(getattr(torch, net.encoder.dtype))
    use_fastest_forms(net)
    net.mark_initial_weights()
    net.eval()


def _takes(inputs: ResidualInputs) -> list[Take]:
    return [Take(slot, columns) for slot, columns in ((NUMBERS, inputs.numbers), (IDS, inputs.ids)) if columns]


def _last(net: TranslatedPipeline, count: int) -> Take:
    """The columns of the last step's output."""
    return Take(last_slot(net.program), range(count))


def _append(net: TranslatedPipeline, module: Any, takes: list[Take]) -> None:
    net.append_step(ProgramStep(module, takes, STEP_NAME), Origin(STEP_NAME, ""))
