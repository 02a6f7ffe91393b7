"""The values of a translation that a refresh moves: residual tables, and leaf values of trees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from windtunnel.encode import Batch
from windtunnel.modules.linear.residual_model import ResidualModel
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.modules.trees.walk_layout import positions_of
from windtunnel.objectives.losses import Loss
from windtunnel.program.installed_residuals import InstalledResiduals
from windtunnel.program.program import IDS
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.refresh.forest_leaves import ForestLeaves, leaves_of
from windtunnel.trainers.refresh.residual_columns import positions_of_new_categories
from windtunnel.trainers.refresh.value_groups import ScoredTargets, ValueGroup, fit_groups

TABLE_PASSES = 10


@dataclass(frozen=True)
class BoostedLeaves:
    """The leaf values of boosted trees: a group per round, of positions in ``trees.value``."""

    position: int  # their program step
    trees: HardTrees
    groups: list[ValueGroup]

    @classmethod
    def of(cls, net: TranslatedPipeline, position: int, weight: float, rows: Batch) -> BoostedLeaves | None:
        """The leaves that rows fall into; None for a step without boosted trees.

        The scores of the step are added to the raw scores times ``weight``.
        """
        step: Any = net.program.steps[position]
        if not isinstance(step.module, HardTrees) or step.module.vector or step.module.divisor != 1:
            return None
        trees, places = leaves_of(net, position, step.module, rows)
        unit = torch.full((trees.outputs,), weight, dtype=torch.float64)
        groups = [ValueGroup.of(places[:, :, tree], len(trees.value), unit) for tree in range(places.shape[2])]
        return cls(position, trees, groups)


@dataclass(frozen=True)
class MovedValues:
    """The result of a fit: changes of the tables and leaves, group by group, and scores ``[N, K]`` of all rows.

    ``leaves`` has a list for each ``BoostedLeaves``; ``forest`` are the changes ``[positions, K]`` of a forest.
    """

    tables: list[Tensor]
    leaves: list[list[Tensor]]
    scores: Tensor
    forest: Tensor | None


@dataclass(frozen=True)
class MovableValues:
    """The values that some rows read."""

    scores: Tensor  # float64 ``[N, K]``, raw scores of the rows with the old values
    residual_position: int  # the program step of the residual model
    # groups of the residual model, each with the name of its parameter, "weight" or "cross"
    tables: list[tuple[str, ValueGroup]]
    leaves: list[BoostedLeaves]  # the leaves of the source and of a boosted residual
    forest: ForestLeaves | None

    @classmethod
    def of(cls, net: TranslatedPipeline, rows: Batch) -> MovableValues:
        """The values of a translation with a residual model, whose scores may be those of trees."""
        installed = InstalledResiduals.of(net.program)
        assert installed.residual is not None
        step: Any = net.program.steps[installed.residual]
        codes = step.module.codes(net.step_inputs(installed.residual, rows))
        ids: list[int] = next((take.columns.tolist() for take in step.takes if take.slot == IDS), [])
        tables = _table_groups(step.module, codes, ids, positions_of_new_categories(net))
        pipeline = installed.pipeline, installed.pipeline_weight
        boosted = [] if installed.boosted is None else [(installed.boosted.trees, 1.0)]
        leaves = [BoostedLeaves.of(net, *step_and_weight, rows) for step_and_weight in (pipeline, *boosted)]
        forest = ForestLeaves.of(net, *pipeline, rows)
        scores = net.run_in_slices(net.program, rows).double()
        return cls(scores, installed.residual, tables, [each for each in leaves if each is not None], forest)

    def fit(self, target: Tensor, weight: Tensor, loss: Loss, anchor: float) -> MovedValues:
        """Move the leaf values of a forest, then the tables in ``TABLE_PASSES`` passes, then boosted leaves in one.

        See ``ForestLeaves.fit`` and ``fit_groups``.
        """
        rows, forest = ScoredTargets(self.scores.clone(), target, weight.double()), None
        if self.forest is not None:
            value = self.forest.fit(target, rows.weight, anchor)
            forest = value - self.forest.trees.value
            rows.scores.add_(self.forest.change(value))
        tables = fit_groups(rows, [group for _, group in self.tables], TABLE_PASSES, loss, anchor)
        leaves = [fit_groups(rows, each.groups, 1, loss, anchor) for each in self.leaves]
        return MovedValues(tables, leaves, rows.scores, forest)

    def install(self, net: TranslatedPipeline, moved: MovedValues) -> None:
        """Give the translation, of which these are the values, the moved ones."""
        residual: Any = net.program.steps[self.residual_position].module
        with torch.no_grad():
            for (name, group), move in zip(self.tables, moved.tables, strict=True):
                parameter = getattr(residual, name)
                parameter.view(-1)[group.used] += move[:-1].to(parameter.dtype)
        for leaves, moves in zip(self.leaves, moved.leaves, strict=True):
            change = torch.zeros_like(leaves.trees.value)
            for group, move in zip(leaves.groups, moves, strict=True):
                change[group.used] += move[:-1]
            net.replace_modules({leaves.position: _add_to_leaves(leaves.trees, change, net.encoder.dtype)})
        if self.forest is not None and moved.forest is not None:
            trees = _add_to_leaves(self.forest.trees, moved.forest, net.encoder.dtype)
            net.replace_modules({self.forest.position: trees})


def _table_groups(
    residual: ResidualModel, codes: Tensor, ids: list[int], only_new: set[int]
) -> list[tuple[str, ValueGroup]]:
    unit, first = residual.unit.double(), residual.edges.shape[0]
    weight = codes + residual.first_code
    for place, column in enumerate(ids, first):
        if column in only_new:  # id 0 is any other category, whose value stays 0
            weight[codes[:, place] == 0, place] = -1
    cross = residual.interaction_rows(codes)
    groups = []
    for name, cells in (("weight", weight), ("cross", cross)):
        table = getattr(residual, name)
        outputs = torch.arange(table.shape[1])
        for column in cells.t():
            read = column.unsqueeze(1)
            flat = torch.where(read < 0, read, read * len(outputs) + outputs)
            groups.append((name, ValueGroup.of(flat, table.numel(), unit)))
    return groups


def _add_to_leaves(trees: HardTrees, change: Tensor, dtype: str) -> HardTrees:
    """The same trees with a change ``[positions]`` or ``[positions, K]`` added to ``trees.value``."""
    ensemble = trees.ensemble()
    leaves = positions_of(ensemble)[len(ensemble.feature) : -1]
    moved = HardTrees.of(replace(ensemble, leaf_value=ensemble.leaf_value + change.numpy()[leaves]))
    moved.cast(getattr(torch, dtype))
    return moved.eval()
