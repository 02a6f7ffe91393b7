"""``python -m benchmarks.tree_costs``: measure the strategies for trees and fit what the cost model ships with."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from catboost import CatBoostRegressor
from lightgbm import Booster, LGBMRegressor
from numpy.typing import NDArray

import windtunnel
from benchmarks.command import command
from windtunnel.compiler.cost_model import TREE_STRATEGIES, EnsembleShape, strategies_of
from windtunnel.compiler.tree_costs import SHIPPED, TreeTiming, fit_costs, read, write
from windtunnel.modules.trees.hard import HardTrees

TREES, LEAVES, DEPTHS, FEATURES = (10, 100, 400), (8, 64, 200), (4, 8, -1), (28, 100, 8)
LEVELS = (4, 6, 8)
ROWS = (1, 100, 1_000, 4_000)
TURNS = 4
FOLDS = 7

app = command()


def ensembles() -> Iterator[HardTrees]:
    """Hard trees of many shapes, LightGBM's and then CatBoost's."""
    for width in FEATURES:
        X, y = _rows(width)
        for leaves, depth in product(LEAVES, DEPTHS):
            if depth < 0 or leaves <= 1 << depth:
                model = LGBMRegressor(n_estimators=max(TREES), num_leaves=leaves, max_depth=depth, min_child_samples=2,
                                      n_jobs=1, verbosity=-1).fit(X, y)  # fmt: skip
                for trees in TREES:
                    yield _trees_of(Booster(model_str=model.booster_.model_to_string(num_iteration=trees)))
    yield from oblivious()


def oblivious() -> Iterator[HardTrees]:
    """CatBoost's trees, all nodes of a level of which ask the same."""
    for width, depth, trees in product(FEATURES, LEVELS, TREES):
        options: dict[str, Any] = {"thread_count": 1, "verbose": False, "allow_writing_files": False}
        yield _trees_of(CatBoostRegressor(iterations=trees, depth=depth, **options).fit(*_rows(width)))


def _rows(width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    X = np.random.default_rng(width).normal(size=(4_000, width))
    return X, np.sin(3 * X[:, 0]) + X @ np.linspace(1, 0.2, width)


def _trees_of(model: Any) -> HardTrees:
    net = windtunnel.compile(model, strategy="tree_traversal")
    return next(module for module in net.modules() if isinstance(module, HardTrees))


@torch.inference_mode()
def timed(trees: HardTrees, rows: int, device: str = "cpu") -> TreeTiming:
    """The median seconds of each strategy that takes an ensemble."""
    shape = EnsembleShape.of(trees)
    x = torch.randn(rows, trees.width, dtype=torch.float64, device=device)
    trees = trees.to(device)
    state, facts = trees.state_dict(), trees.facts()
    forms = {name: TREE_STRATEGIES[name].form.rebuild(state, facts) for name in strategies_of(shape)}
    forms = {name: form.to(device) for name, form in forms.items()}
    # Of a processor the time that the thread had; a GPU is waited for.
    clock = time.thread_time if device == "cpu" else time.perf_counter
    taken: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(TURNS + 1):
        for name, form in forms.items():
            start = clock()
            form(x).cpu()
            taken[name].append(clock() - start)
    return TreeTiming(device, shape, rows, {name: statistics.median(times[1:]) for name, times in taken.items()})


def regrets(cells: Sequence[TreeTiming]) -> list[float]:
    """The time of what is chosen over the best, where a seventh of the ensembles is held out of the fit in turn."""
    shapes = list(dict.fromkeys(cell.shape for cell in cells))
    found = []
    for fold in range(FOLDS):
        out = set(shapes[fold::FOLDS])
        learned = fit_costs([cell for cell in cells if cell.shape not in out])
        for cell in cells:
            if cell.shape in out:
                chosen = next(iter(cell.shape.seconds(cell.rows, learned)))
                found.append(cell.seconds[chosen] / min(cell.seconds.values()))
    return found


@app.callback()
def main(
    output: Annotated[Path, typer.Option(help="Where the measurements go, as CSV.")] = SHIPPED,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    measure: Annotated[bool, typer.Option(help="Measure; without it, only compare the stored numbers.")] = True,
) -> None:
    """Measure on one thread, write, and say how far "auto" is from the best strategy of ensembles left out of the fit.

    Measurements of other kinds of devices in the file stay.
    """
    torch.set_num_threads(1)
    others = [cell for cell in read(output) if cell.device != device] if output.exists() else []
    if measure:
        write(output, [*others, *(timed(trees, rows, device) for trees in ensembles() for rows in ROWS)])
    cells = [cell for cell in read(output) if cell.device == device]
    found = regrets(cells)
    within = np.mean(np.array(found) <= 1.1)
    print(f"{len(cells)} cells: the choice is at most 10 % slower than the best in {within:.0%} of them, "
          f"{np.median(found):.2f} times the best in the median and {max(found):.2f} times at worst")  # fmt: skip


if __name__ == "__main__":
    app()
