"""``python -m benchmarks.tree_costs``: measure the strategies for trees and fit what the cost model ships with."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import json
import statistics
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from catboost import CatBoostRegressor
from lightgbm import Booster, LGBMRegressor
from numpy.typing import NDArray
from scipy.optimize import nnls

import windtunnel
from windtunnel.compiler import cost_model
from windtunnel.compiler.cost_model import Shape
from windtunnel.compiler.strategies import FORMS
from windtunnel.modules.trees.hard import HardTrees

SHIPPED = Path(cost_model.__file__).with_name("tree_costs.json")
TREES, LEAVES, DEPTHS, FEATURES = (10, 100, 400), (8, 64, 200), (4, 8, -1), (28, 100, 8)
LEVELS = (4, 6, 8)
ROWS = (1, 100, 1_000, 4_000)
TURNS = 4


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
def timed(trees: HardTrees, rows: int) -> tuple[Shape, dict[str, float]]:
    """The shape of an ensemble, and the median seconds of each strategy that takes it."""
    shape = Shape.of(trees)
    x = torch.randn(rows, trees.width, dtype=torch.float64)
    forms = {name: form.rebuild(trees.state_dict(), trees.facts()) for name, form in FORMS.items() if shape.takes(name)}
    taken: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(TURNS + 1):
        for name, form in forms.items():
            start = time.thread_time()
            form(x)
            taken[name].append(time.thread_time() - start)
    return shape, {name: statistics.median(times[1:]) for name, times in taken.items()}


def fitted(cells: list[tuple[Shape, int, dict[str, float]]]) -> dict[str, list[float]]:
    """Coefficients, none below 0, with the least squares of relative errors."""
    costs = {}
    for name in FORMS:
        known = [(shape.terms(name, rows), seconds[name]) for shape, rows, seconds in cells if name in seconds]
        terms, seconds = np.array([one for one, _ in known]), np.array([one for _, one in known])
        costs[name] = [float(f"{one:.4g}") for one in nnls(terms / seconds[:, None], np.ones(len(known)))[0]]
    return costs


def main(
    output: Annotated[Path, typer.Option(help="Where the coefficients go.")] = SHIPPED,
    cells_file: Annotated[Path | None, typer.Option(help="Where the measurements go, a JSON line each.")] = None,
) -> None:
    """Measure on one thread, fit, write, and say how far "auto" is from the best strategy on the same cells."""
    torch.set_num_threads(1)
    cells = []
    for trees in ensembles():
        for rows in ROWS:
            shape, seconds = timed(trees, rows)
            cells.append((shape, rows, seconds))
            if cells_file is not None:
                with cells_file.open("a") as file:
                    print(json.dumps({"shape": vars(shape), "rows": rows, "seconds": seconds}), file=file)
    output.write_text(json.dumps(fitted(cells), indent=1) + "\n")
    cost_model._coefficients.cache_clear()
    regrets = [seconds[next(iter(shape.seconds(rows)))] / min(seconds.values()) for shape, rows, seconds in cells]
    within = np.mean(np.array(regrets) <= 1.1)
    print(f"{len(cells)} cells: the choice is at most 10 % slower than the best in {within:.0%} of them, "
          f"{np.median(regrets):.2f} times the best in the median and {max(regrets):.2f} times at worst")  # fmt: skip


if __name__ == "__main__":
    typer.run(main)
