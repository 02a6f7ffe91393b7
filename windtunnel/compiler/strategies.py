"""The strategy of each tree ensemble: chosen by name, by the cost model, or by measurement."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch import Tensor, nn

from windtunnel.compiler.cost_model import TREE_STRATEGIES, EnsembleShape, strategies_of
from windtunnel.compiler.tree_costs import coefficients
from windtunnel.errors import InvalidOption
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.program.program import Program
from windtunnel.program.records.strategy_choice import StrategyChoice
from windtunnel.program.translated import TranslatedPipeline

STRATEGIES = ("auto", *TREE_STRATEGIES)
ROW_COUNTS = (1, 1_000, 100_000)
"""The numbers of rows that are compared if ``rows`` is None."""
MEASURED_STRATEGIES = 3
"""How many strategies are measured, those expected to be fastest."""
TIMED_CALLS = 7
"""Timed calls of each strategy, after one that is not timed."""
MOST_TIMED_ROWS = 10_000
"""The most rows of a timed call."""


@dataclass(frozen=True)
class TreeRunner:
    """A backend that can run trees without the steps around them."""

    backend: str
    prepare: Callable[[HardTrees], Callable[[Tensor], Tensor]]
    """``prepare(trees)`` gives a function of rows ``[B, width]`` to scores ``[B, K]``."""


EAGER = TreeRunner("torch", lambda trees: trees)


def convert_trees(
    program: Program, strategy: str, *, rows: int | None = None, measure: TreeRunner | None = None
) -> list[StrategyChoice]:
    """Replace each tree ensemble of a program by the form of a strategy; all forms give the same bits.

    Returns the choice for each ensemble. ``strategy`` is one of ``TREE_STRATEGIES``, or "auto", which takes the fastest
    by the cost model for ``rows`` rows, or for one, few and many if ``rows`` is None.

    With ``measure``, a backend, "auto" measures the fastest few of the cost model. On a device without a cost model it
    measures all. Trees that give their leaves (``apply``) or have linear models are always walked.

    Raises
    ------
    InvalidOption
        Trees are too deep, or have too many leaves, for the strategy.
    """
    formed: dict[HardTrees, HardTrees] = {}
    choices: list[StrategyChoice] = []
    for step in [*program.steps, *program.method_steps.values()]:
        for path, trees in [*step.named_modules(remove_duplicate=False)]:
            if not has_forms(trees):
                continue
            if trees not in formed:
                choice = StrategyChoice(step.name, strategy)
                if strategy == "auto":
                    choice = _fastest_strategy(trees, step.name, rows, measure)
                formed[trees] = _in_form(trees, choice.strategy, step.name)
                choices.append(choice)
            step.set_submodule(path, formed[trees])
    return choices


def use_fastest_forms(net: TranslatedPipeline) -> None:
    """Replace the tree ensembles of a translation by their fastest forms, and record the choices."""
    net.configure(strategy_choices=convert_trees(net.program, "auto"))


def has_forms(module: nn.Module) -> TypeGuard[HardTrees]:
    """Whether a module is trees in the form of a strategy; not those that give their leaves or hold linear models."""
    return type(module) in {each.form for each in TREE_STRATEGIES.values()}


def fastest(trees: HardTrees) -> HardTrees:
    """The fastest form by the cost model for one, few and many rows; trees that are always walked stay as they are."""
    if not has_forms(trees):
        return trees
    return _in_form(trees, _fastest_strategy(trees, "", None, None).strategy, "").eval()


def _in_form(trees: HardTrees, strategy: str, step: str) -> HardTrees:
    form = TREE_STRATEGIES[strategy].form
    if type(trees) is form:
        return trees
    try:
        return form.rebuild(trees.state_dict(), trees.facts())
    except InvalidOption as error:
        raise InvalidOption(f"step {step!r}: {error}") from error


def _fastest_strategy(trees: HardTrees, step: str, rows: int | None, measure: TreeRunner | None) -> StrategyChoice:
    shape, device = EnsembleShape.of(trees), trees.threshold.device.type
    learned, threads = coefficients(device), torch.get_num_threads() if device == "cpu" else 1
    expected = _costs(lambda count: shape.seconds(count, learned, threads), rows) if learned else {}
    if measure is None and learned:
        return StrategyChoice(step, next(iter(expected)), rows, expected)
    measure, tried = measure or EAGER, list(expected)[:MEASURED_STRATEGIES] or strategies_of(shape)
    runs = {strategy: measure.prepare(_in_form(trees, strategy, step)) for strategy in tried}
    measured = _costs(lambda count: _seconds(runs, _rows_from_thresholds(trees, min(count, MOST_TIMED_ROWS))), rows)
    return StrategyChoice(step, next(iter(measured)), rows, expected, measured, measure.backend)


def _costs(seconds: Callable[[int], dict[str, float]], rows: int | None) -> dict[str, float]:
    """Cost of each strategy, cheapest first.

    The cost is the seconds for ``rows``; if None, the geometric mean over ``ROW_COUNTS`` of its time over the fastest.
    """
    if rows is not None:
        costs = seconds(rows)
    else:
        each = [seconds(count) for count in ROW_COUNTS]
        costs = {
            strategy: math.prod(times[strategy] / min(times.values()) for times in each) ** (1 / len(each))
            for strategy in each[0]
        }
    return dict(sorted(costs.items(), key=lambda item: item[1]))


@torch.inference_mode()
def _seconds(runs: Mapping[str, Callable[[Tensor], Tensor]], x: Tensor) -> dict[str, float]:
    """Median seconds of a call of each form, in turns."""
    taken: dict[str, list[float]] = {strategy: [] for strategy in runs}
    for _ in range(TIMED_CALLS + 1):
        for strategy, run in runs.items():
            start = time.perf_counter()
            run(x).cpu()  # waits for a GPU
            taken[strategy].append(time.perf_counter() - start)
    return {strategy: statistics.median(times[1:]) for strategy, times in taken.items()}


def _rows_from_thresholds(trees: HardTrees, rows: int) -> Tensor:
    """Random thresholds as rows, which reach all leaves; a processor predicts the branches of equal rows too well."""
    drawn = torch.Generator().manual_seed(0)
    split = trees.threshold[torch.isfinite(trees.threshold)].cpu()
    if len(split) == 0:
        split = torch.zeros(1, dtype=torch.float64)
    return split[torch.randint(len(split), (rows, trees.width), generator=drawn)].to(trees.threshold.device)
