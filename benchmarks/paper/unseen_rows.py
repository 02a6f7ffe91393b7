"""Why joint training does not improve an overfitted booster: what rows teach that it has seen, and that it has not.

python -m benchmarks.paper.unseen_rows --data NAME=PATH [--rows N]

fits the paper's booster (Pre2, Pipe2) on every other block of training rows, and tunes a factor for each tree, its leaf
values, and both, once on the rows of these blocks and once on those between them. Trees stay hard.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
import typer
from lightgbm import LGBMClassifier
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.command import command
from benchmarks.paper.cells import config, halves, seeded
from benchmarks.sets import load
from windtunnel.experiment.run import build_pipeline

FACTOR_STEPS, FACTOR_RATE, FACTOR_BATCH = 200, 0.02, 4096
LEAF_STEPS, LEAF_BATCH = 400, 512
PARTS = ("valid", "test")

app = command()


class ScaledTrees(nn.Module):
    """Raw scores of a fitted booster: base + sum over trees t of factor[t] value[t, leaf of the row].

    Shape
    -----
    int64 ``[B, trees]``, the number of the leaf in each tree -> ``[B]``
    """

    def __init__(self, booster: LGBMClassifier, X: Any) -> None:
        super().__init__()
        leaves = _leaves(booster, X)
        model = booster.booster_
        values = torch.zeros(leaves.shape[1], int(model.params["num_leaves"]))
        for tree in range(len(values)):
            for leaf in leaves[:, tree].unique().tolist():
                values[tree, leaf] = model.get_leaf_output(tree, leaf)
        self.values, self.factors = nn.Parameter(values), nn.Parameter(torch.ones(len(values)))
        self.base = 0.0
        self.base = float((torch.as_tensor(booster.predict(X, raw_score=True)) - self(leaves)).mean())

    def forward(self, leaves: Tensor) -> Tensor:
        """Raw scores."""
        return self.base + (self.values[torch.arange(leaves.shape[1]), leaves] * self.factors).sum(dim=1)


def _leaves(booster: LGBMClassifier, X: Any) -> Tensor:
    return torch.as_tensor(booster.predict(X, pred_leaf=True)).long()


def tune_factors(trees: ScaledTrees, leaves: Tensor, target: Tensor) -> None:
    """Tune the factors in [0, 1]."""
    _tune(trees, trees.factors, leaves, target, FACTOR_STEPS, FACTOR_RATE, FACTOR_BATCH)


def tune_leaves(trees: ScaledTrees, leaves: Tensor, target: Tensor, rate: float) -> None:
    """Tune the leaf values."""
    _tune(trees, trees.values, leaves, target, LEAF_STEPS, rate, LEAF_BATCH)


def _tune(
    trees: ScaledTrees, weights: nn.Parameter, leaves: Tensor, target: Tensor, steps: int, rate: float, batch: int
) -> None:
    generator, optimizer = torch.Generator().manual_seed(0), torch.optim.Adam([weights], rate)
    for _ in range(steps):
        rows = torch.randint(len(target), (batch,), generator=generator)
        optimizer.zero_grad()
        binary_cross_entropy_with_logits(trees(leaves[rows]), target[rows]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if weights is trees.factors:
            with torch.no_grad():
                weights.clamp_(0, 1)


@app.callback()
def main(
    data: Annotated[str, typer.Option(help="NAME=PATH.")],
    rows: Annotated[int | None, typer.Option(help="Take so many rows at random.")] = None,
) -> None:
    """Print the AUC of each part for each way of tuning."""
    data_set = load(data, rows=rows)
    parts = halves(*data_set.part("train")) | {name: data_set.part(name) for name in PARTS}
    pipeline = seeded(build_pipeline(config(2, 2)[0].pipeline, parts["all"][0]), 0).fit(*parts["seen"])
    del parts["all"]
    inputs = {name: pipeline[:-1].transform(part) for name, (part, _) in parts.items()}
    leaves = {name: _leaves(pipeline[-1], part) for name, part in inputs.items()}
    targets = {name: torch.as_tensor(target == pipeline.classes_[1]).float() for name, (_, target) in parts.items()}

    def show(text: str, trees: ScaledTrees, *names: str) -> None:
        with torch.no_grad():
            scores = {name: roc_auc_score(targets[name], trees(leaves[name])) for name in (*names, *PARTS)}
        typer.echo(f"{text:40}" + "  ".join(f"{name} {score:.4f}" for name, score in scores.items()))

    def fitted() -> ScaledTrees:
        return ScaledTrees(pipeline[-1], inputs["seen"])

    show("the booster", fitted(), "seen", "unseen")
    for name in ("seen", "unseen"):
        for rate in (3e-4, 3e-3):
            trees = fitted()
            tune_leaves(trees, leaves[name], targets[name], rate)
            show(f"leaf values on {name} rows, rate {rate:g}", trees)
        trees = fitted()
        tune_factors(trees, leaves[name], targets[name])
        show(f"a factor per tree on {name} rows", trees)
        factors = trees.factors.detach()
        typer.echo(f"  factors: first ten {factors[:10].mean():.2f}, last ten {factors[-10:].mean():.2f}")
        tune_leaves(trees, leaves[name], targets[name], 3e-4)
        show("  then leaf values, rate 0.0003", trees)


if __name__ == "__main__":
    app()
