"""Soft modules instead of those without a gradient, in a program that is otherwise exact."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from windtunnel.encode import Batch
from windtunnel.errors import InvalidOption
from windtunnel.modules.base import Module
from windtunnel.modules.tables.category_table import CategoryTable
from windtunnel.modules.tables.code_tables import CodeTables
from windtunnel.modules.tables.target_statistics import TargetStatistics
from windtunnel.modules.trees import HardTrees, LeafOneHot, SoftLeaves, SoftTrees, TreeEnsemble
from windtunnel.modules.trees.soft.soften import soften, soften_leaves
from windtunnel.program.fidelity import explained_variance
from windtunnel.program.program import Program, ProgramStep, Take, steps_read
from windtunnel.program.translated import TranslatedPipeline

SOFT_FRACTIONS = (0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.0)
"""Candidates for the initial softness of trees, softest first: see ``soften``."""
LEAST_SCORE_R2 = 0.99995
"""R squared of the raw scores on the calibration rows that soft trees must keep."""
LARGEST = 2**26
"""The most weights of the second layer of soft trees: trees times the nodes and the leaves of the largest one."""


def soften_steps(
    net: TranslatedPipeline, level: str | Mapping[str, str], start: str, temperature: float | str, batch: Batch | None
) -> dict[int, Module]:
    """Put soft modules into steps; the modules that they replace, by position. Arguments as those of ``translate``.

    Raises
    ------
    InvalidOption
        ``level`` names a step that holds no trees.
    """
    levels = _levels(net.program, level)
    _freeze_behind(net.program, levels)
    exact: dict[int, Any] = {position: step.module for position, step in enumerate(net.program.steps)}
    for position, step in enumerate(net.program.steps):
        if position not in levels and isinstance(step.module, Module):
            if isinstance(step.module, CodeTables):
                _freeze(_tables(net.program, step).values())  # type: ignore[arg-type]
            net.replace_modules({position: _softened(net.program, position, batch)})
    for position, name in levels.items():
        net.replace_modules({position: _soft_trees(net, position, name, start, temperature, batch)})
    steps = enumerate(net.program.steps)
    return {position: exact[position] for position, step in steps if step.module is not exact[position]}


def _levels(program: Program, level: str | Mapping[str, str]) -> dict[int, str]:
    """The level of each program step that holds trees."""
    steps: dict[int, Any] = dict(enumerate(program.steps))
    trees = {index: step.name for index, step in steps.items() if isinstance(step.module, HardTrees | LeafOneHot)}
    if not isinstance(level, Mapping):
        return dict.fromkeys((index for index in trees if _may_soften(steps[index])), level)
    unknown = sorted(set(level) - set(trees.values()))
    if unknown:
        close = get_close_matches(unknown[0], list(trees.values()), n=1)
        raise InvalidOption(
            f"level names steps without trees: {', '.join(map(repr, unknown))}; steps with trees are "
            f"{', '.join(map(repr, trees.values())) or 'none'}" + (f". Did you mean {close[0]!r}?" if close else ".")
        )
    return {index: level.get(name, "L4") for index, name in trees.items()}


def _freeze_behind(program: Program, levels: Mapping[int, str]) -> None:
    """Freeze steps whose output only reaches trees that stay hard: no gradient comes back."""
    steps: list[Any] = list(program.steps)
    hard = {index for index, step in enumerate(steps) if isinstance(step.module, HardTrees | LeafOneHot)} - {*levels}
    reached, new = set[int](), {len(steps) - 1}
    while new:
        reached |= new
        new = set[int]().union(*(steps_read(steps[index]) for index in new - hard)) - reached
    for index, step in enumerate(steps):
        if hard and (index in hard or index not in reached):
            step.requires_grad_(False)


def _may_soften(step: ProgramStep) -> bool:
    """Whether the trees of a step are small enough; warns if not."""
    ensemble: TreeEnsemble = step.module.ensemble()  # type: ignore[operator]
    leaves = int(np.diff(ensemble.leaf_start).max(initial=0))
    numbers = len(ensemble.output) * leaves * max(leaves - 1, 0)
    if numbers <= LARGEST:
        return True
    warnings.warn(
        f"the trees of step {step.name!r} stay hard: {len(ensemble.output):,} soft trees of up to {leaves:,} leaves "
        f"would have {numbers:,} weights in their second layer ({numbers * 4 / 2**30:.1f} GiB). fit trains a residual "
        "model on top of them. To tune the trees too, fit smaller ones (max_leaf_nodes=256, say), or insist: "
        f"level={{{step.name!r}: 'L4'}}.",
        UserWarning,
        stacklevel=6,
    )
    return False


def _soft_trees(
    net: TranslatedPipeline, position: int, level: str, start: str, temperature: float | str, batch: Batch | None
) -> SoftTrees | SoftLeaves:
    """Soft trees for a step of hard ones, soft leaves for one of one-hot leaves."""
    step: ProgramStep = net.program.steps[position]  # type: ignore[assignment]
    hard: HardTrees | LeafOneHot = step.module  # type: ignore[assignment]
    form = soften_leaves if isinstance(hard, LeafOneHot) else soften
    ensemble = hard.ensemble()
    tables = _tables(net.program, step)
    _freeze_codes(ensemble, tables)
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
            # Leaves that are not quite shut leak nearly the same sum for every row.
            with torch.no_grad():
                soft.base.sub_((soft(inputs) - exact).mean(dim=0))
        return soft

    def output(trees: Module) -> torch.Tensor:
        """The output of trees; of leaves, which have no score, the output of the program."""
        net.replace_modules({position: trees})
        if isinstance(hard, LeafOneHot):
            return net.scores(batch)
        with torch.no_grad():
            return trees(inputs)  # type: ignore[no-any-return]

    exact = output(hard)
    for soft_fraction in SOFT_FRACTIONS:
        if explained_variance(output(softened("L0", "warm", soft_fraction)), exact) >= LEAST_SCORE_R2:
            break
    return softened(level, start, soft_fraction)


def _softened(program: Program, position: int, batch: Batch | None) -> Module:
    """The differentiable form of a step without trees."""
    module: Module = program.steps[position].module  # type: ignore[assignment]
    if type(module).soft is Module.soft:
        return module
    with torch.no_grad():
        return module.soft(None if batch is None else program.inputs_of(position, *batch))


class TableColumn(NamedTuple):
    """A column of a category table, and the program step that the table is in."""

    step: ProgramStep
    table: CategoryTable
    at: int


def _tables(program: Program, step: ProgramStep) -> dict[int, TableColumn]:
    """The input columns of a step that come straight from a category table."""
    return {
        column: TableColumn(source, source.module, at)
        for column, (source, at) in enumerate(_sources(program, step))
        if source is not None and isinstance(source.module, CategoryTable)
    }


def _sources(program: Program, step: ProgramStep) -> list[tuple[ProgramStep | None, int]]:
    """The step that each input column of a step comes from (None for the batch), and its position there."""
    sources: list[tuple[ProgramStep | None, int]] = []
    for take in step.takes:
        assert isinstance(take, Take)
        source: Any = program.steps[take.slot - 2] if take.slot >= 2 else None
        sources += [(source, at) for at in take.columns.tolist()]
    return sources


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


def _freeze_codes(ensemble: TreeEnsemble, tables: Mapping[int, TableColumn]) -> None:
    """Freeze the codes that a categorical node looks up."""
    _freeze(tables[column] for column in {int(ensemble.feature[node]) for node in ensemble.categories} & tables.keys())


def _freeze(columns: Iterable[TableColumn]) -> None:
    """Make codes constant: training would turn them into other categories."""
    for column in columns:
        column.step.module = CategoryTable(column.table.rows.detach(), trainable=False)


def redraw_tables(program: Program) -> None:
    """Redraw embeddings from a normal distribution with the standard deviation of the table."""
    generator = torch.Generator().manual_seed(0)
    for step in program.steps:
        module = step.module
        if isinstance(module, CategoryTable | TargetStatistics) and module.rows.requires_grad:
            with torch.no_grad():
                scale = module.rows.std(unbiased=False).clamp_min(1e-3)
                module.rows.copy_(torch.randn(module.rows.shape, generator=generator) * scale)
