"""Soft modules instead of those without a gradient, in a program that is otherwise exact."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from difflib import get_close_matches

import numpy as np
import torch
from numpy.typing import NDArray

from windtunnel.encode import Batch
from windtunnel.errors import InvalidOption, warn_caller
from windtunnel.modules.base import Module
from windtunnel.modules.linear.factorization_machine import FactorizationMachine
from windtunnel.modules.linear.linear import Linear, LinearSkippingMissing
from windtunnel.modules.linear.multilayer import MultilayerPerceptron
from windtunnel.modules.tables.category_table import CategoryTable
from windtunnel.modules.tables.code_tables import CodeTables
from windtunnel.modules.tables.target_statistics import TargetStatistics
from windtunnel.modules.trees import HardTrees, LeafOneHot, SoftLeaves, SoftTrees, TreeEnsemble
from windtunnel.modules.trees.soft.soften import soften as soften_trees, soften_leaves
from windtunnel.program.program import Program, ProgramStep, steps_read
from windtunnel.program.records.fidelity import CalibrationRows, r2_score, warn_if_low
from windtunnel.program.translate_options import SofteningPlan, warn_of_few_rows
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.progress import Phase

SOFT_FRACTIONS = (0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.0)
"""Candidates for the initial softness of trees, softest first: see ``soften``."""
LEAST_SCORE_R2 = 0.99995
"""R squared of the raw scores on the calibration rows that soft trees must keep."""
REDRAWN: dict[type[Module], tuple[str, ...]] = {
    CategoryTable: ("rows",),
    CodeTables: ("rows",),
    TargetStatistics: ("rows",),
    Linear: ("weight",),
    LinearSkippingMissing: ("weight",),
    MultilayerPerceptron: ("weight",),
    FactorizationMachine: ("weight", "factors"),
}
"""The parameters that a cold start redraws, beside those of soft trees."""
MAX_SECOND_LAYER = 2**26
"""The most weights of the second layer of soft trees: trees times the nodes and the leaves of the largest one."""


def soften(net: TranslatedPipeline, calibration: CalibrationRows | None = None, start: str = "warm") -> None:
    """Replace exact trees, and other modules without a gradient, by soft ones, as ``translate`` was told.

    Nothing happens if they are soft already. An error or an interrupt leaves the exact modules. By default the
    calibration rows are those that ``translate`` was given.
    """
    plan = net.softening
    if plan is None or not net.softening_pending:
        return
    calibration = calibration or net.calibration
    if calibration is not None and may_soften(net.program):
        warn_of_few_rows(len(calibration.outputs))
    device, exact = net.device(), {at: step.module for at, step in enumerate(net.program.steps)}
    with net.unchanged_on_error():
        for name in plan.trainable:
            net.program.get_parameter(name).requires_grad_()
        net.cpu()
        soften_steps(net, plan, start, None if calibration is None else calibration.batch)
        net.to(device)
    replaced = {at: exact[at] for at, step in enumerate(net.program.steps) if step.module is not exact[at]}
    if replaced:
        rescale_probabilities(net)
    if start == "warm" and replaced:
        net.set_exact_modules(replaced)
    else:
        net.finish_softening()
    names = {net.program.steps[at].name for at in replaced}
    net.configure(strategy_choices=[choice for choice in net.strategy_choices if choice.step not in names])
    if start == "cold":
        redraw_weights(net.program)
    net.mark_initial_weights()
    net.train(net.training)
    if calibration is not None and (replaced or start == "cold"):
        fidelity = calibration.fidelity(net)
        net.record(fidelity=fidelity)
        if start == "warm" and plan.temperature == "auto":
            warn_if_low(fidelity)


def rescale_probabilities(net: TranslatedPipeline) -> None:
    """Divide outputs that are probabilities by their sum; those of several targets stay as they are.

    Outputs of soft trees and of trained steps do not quite add up to 1, and may be below 0.
    """
    if net.head.link == "probabilities" and not net.head.has_several_targets:
        net.replace_head(replace(net.head, link="shares"))


def may_soften(program: Program) -> bool:
    """Whether a step of a program has a soft form."""
    modules = [step.module for step in program.steps]
    return any(isinstance(each, HardTrees | LeafOneHot) or type(each).soft is not Module.soft for each in modules)


def soften_steps(net: TranslatedPipeline, plan: SofteningPlan, start: str, batch: Batch | None) -> None:
    """Put soft modules into the steps of a program that is exact."""
    levels = _levels(net.program, plan.level)
    for position in _tree_steps(net.program).keys() - levels.keys():
        _warn_of_hard_trees(net.program.steps[position])
    for position in _without_gradient(net.program, levels):
        net.program.steps[position].requires_grad_(False)
    for position, step in enumerate(net.program.steps):
        if position not in levels:
            if isinstance(step.module, CodeTables):
                _freeze_codes(net.program, step, range(len(step.places())))
            net.replace_modules({position: _softened(net.program, position, batch)})
    with Phase("making trees soft", total=len(levels)) as phase:
        for position, name in levels.items():
            net.replace_modules({position: _soft_trees(net, position, name, start, plan.temperature, batch)})
            phase.advance()


def check_level(program: Program, level: str | Mapping[str, str]) -> None:
    """Raise ``InvalidOption`` where ``level`` names a step that holds no trees."""
    names = list(_tree_steps(program).values())
    unknown = sorted(set(level) - set(names)) if isinstance(level, Mapping) else []
    if unknown:
        close = get_close_matches(unknown[0], names, n=1)
        raise InvalidOption(
            f"level names steps without trees: {', '.join(map(repr, unknown))}; steps with trees are "
            f"{', '.join(map(repr, names)) or 'none'}" + (f". Did you mean {close[0]!r}?" if close else ".")
        )


def trainable_when_soft(program: Program, plan: SofteningPlan) -> bool:
    """Whether an exact program has something to train once it is soft."""
    levels = _levels(program, plan.level)
    blocked = _without_gradient(program, levels)
    steps = [int(name.split(".")[1]) for name in plan.trainable if name.startswith("steps.")]
    return any(level != "L0" for level in levels.values()) or bool(set(steps) - blocked)


def _levels(program: Program, level: str | Mapping[str, str]) -> dict[int, str]:
    """The level of each program step whose trees become soft."""
    trees = _tree_steps(program)
    if isinstance(level, Mapping):
        return {index: level.get(name, "L4") for index, name in trees.items()}
    return {index: level for index in trees if _second_layer(program.steps[index])[-1] <= MAX_SECOND_LAYER}


def _tree_steps(program: Program) -> dict[int, str]:
    """The names of the steps that hold trees, by position."""
    trees = (HardTrees, LeafOneHot)
    return {index: step.name for index, step in enumerate(program.steps) if isinstance(step.module, trees)}


def _without_gradient(program: Program, levels: Mapping[int, str]) -> set[int]:
    """The steps whose output only reaches trees that stay hard, and these trees: no gradient comes back."""
    if not (hard := _tree_steps(program).keys() - levels.keys()):
        return set()
    steps = program.steps
    reached, new = set[int](), {len(steps) - 1}
    while new:
        reached |= new
        new = set[int]().union(*(steps_read(steps[index]) for index in new - hard)) - reached
    return {index for index in range(len(steps)) if index in hard or index not in reached}


def _second_layer(step: ProgramStep) -> tuple[int, int, int]:
    """The trees of a step, the leaves of the largest, and the weights of their second layer."""
    ensemble: TreeEnsemble = step.module.ensemble()  # type: ignore[operator]
    leaves = int(np.diff(ensemble.leaf_start).max(initial=0))
    return len(ensemble.output), leaves, len(ensemble.output) * leaves * max(leaves - 1, 0)


def _warn_of_hard_trees(step: ProgramStep) -> None:
    trees, leaves, weights = _second_layer(step)
    warn_caller(
        f"the trees of step {step.name!r} stay hard: {trees:,} soft trees of up to {leaves:,} leaves would have "
        f"{weights:,} weights in their second layer ({weights * 4 / 2**30:.1f} GiB). fit trains a residual model on "
        "top of them. To tune the trees too, fit smaller ones (max_leaf_nodes=256, say), or insist: "
        f"level={{{step.name!r}: 'L4'}}.",
    )


def _soft_trees(
    net: TranslatedPipeline, position: int, level: str, start: str, temperature: float | str, batch: Batch | None
) -> SoftTrees | SoftLeaves:
    """Soft trees for a step of hard ones, soft leaves for one of one-hot leaves."""
    step = net.program.steps[position]
    hard: HardTrees | LeafOneHot = step.module  # type: ignore[assignment]
    form = soften_leaves if isinstance(hard, LeafOneHot) else soften_trees
    ensemble = hard.ensemble()
    _freeze_codes(net.program, step, {int(ensemble.feature[node]) for node in ensemble.categories})
    if temperature != "auto":
        return form(ensemble, level=level, start=start, temperature=float(temperature))
    grids = _grids(net.program, step)
    if batch is None:
        return form(ensemble, level=level, start=start, grids=grids)
    with torch.no_grad():
        inputs = net.program.inputs_of(position, *batch)
    sample = inputs.double().numpy()

    def softened(level: str, start: str, soft_fraction: float) -> SoftTrees | SoftLeaves:
        soft = form(ensemble, level=level, start=start, soft_fraction=soft_fraction, sample=sample, grids=grids).eval()
        if isinstance(soft, SoftTrees) and start == "warm":
            # Leaves that a row does not fall into contribute nearly the same sum for every row.
            with torch.no_grad():
                soft.base.sub_((soft(inputs) - exact).mean(dim=0))
        return soft

    def scores_with(trees: Module) -> torch.Tensor:
        """The output of trees; of leaves, which have no scores, that of the program with them."""
        if isinstance(hard, LeafOneHot):
            net.replace_modules({position: trees})
            return net.scores(batch)
        with torch.no_grad():
            return trees(inputs)  # type: ignore[no-any-return]

    exact = scores_with(hard)
    *softer, sharpest = SOFT_FRACTIONS
    faithful = (
        fraction
        for fraction in softer
        if r2_score(scores_with(softened("L0", "warm", fraction)), exact) >= LEAST_SCORE_R2
    )
    return softened(level, start, next(faithful, sharpest))


def _softened(program: Program, position: int, batch: Batch | None) -> Module:
    """The differentiable form of a step without trees."""
    module = program.steps[position].module
    if type(module).soft is Module.soft:
        return module
    with torch.no_grad():
        return module.soft(None if batch is None else program.inputs_of(position, *batch))


def _sources(program: Program, step: ProgramStep) -> list[tuple[ProgramStep | None, int]]:
    """The step that each input column of a step comes from (None for the batch), and its position there."""
    steps = [None, None, *program.steps]
    return [(steps[slot], at) for slot, at in step.places()]


def _grids(program: Program, step: ProgramStep) -> dict[int, NDArray[np.float64]]:
    """Every value that input columns straight from tables can take."""
    values = {}
    for column, (source, at) in enumerate(_sources(program, step)):
        module = None if source is None else source.module
        if isinstance(module, CategoryTable):
            values[column] = module.rows[:, at]
        elif isinstance(module, TargetStatistics):
            values[column] = module.values(at)
    grids = {column: np.unique(value.detach().double().numpy()) for column, value in values.items()}
    return {column: grid[np.isfinite(grid)] for column, grid in grids.items()}


def _freeze_codes(program: Program, step: ProgramStep, columns: Container[int]) -> None:
    """Make codes in these input columns of a step constant: training would turn them into other categories."""
    for column, (source, _) in enumerate(_sources(program, step)):
        if column in columns and source is not None and isinstance(source.module, CategoryTable):
            source.module = CategoryTable(source.module.rows.detach(), trainable=False)


def redraw_weights(program: Program) -> None:
    """Redraw embeddings, linear weights and factors from a normal distribution of the standard deviation they had.

    Biases stay, as does what scales single columns.
    """
    generator = torch.Generator().manual_seed(0)
    for step in program.steps:
        for name in REDRAWN.get(type(step.module), ()):
            weight: torch.nn.Parameter = getattr(step.module, name)
            if weight.requires_grad and weight.numel():
                with torch.no_grad():
                    scale = weight.std(unbiased=False).clamp_min(1e-3)
                    weight.copy_(torch.randn(weight.shape, generator=generator) * scale)
