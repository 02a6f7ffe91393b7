"""The trees of a translation's last step, for the files of LightGBM and XGBoost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from windtunnel.errors import UnfaithfulOption
from windtunnel.modules.trees import HardTrees, SoftTrees, TreeEnsemble
from windtunnel.modules.trees.ensemble import MISSING_NONE
from windtunnel.program.installed_residuals import InstalledResiduals
from windtunnel.program.program import NUMBERS, ProgramStep
from windtunnel.program.translated import TranslatedPipeline

FORBIDDEN = set(' "\\,:[]{}<>=\t\r\n')
"""Characters that feature names of LightGBM or XGBoost must not have."""


@dataclass(frozen=True)
class Tree:
    """One tree of n nodes with a number at each of its n + 1 leaves; arrays as in ``TreeEnsemble``."""

    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    default_left: NDArray[np.bool_]
    missing: NDArray[np.int8]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    leaf_value: NDArray[np.float64]
    categories: dict[int, NDArray[np.int64]]


@dataclass(frozen=True)
class FinalTrees:
    """The trees of a translation's last step, and the link of their scores."""

    ensemble: TreeEnsemble
    columns: list[str] | None  # names of the trees' columns, if all of them are raw columns with names
    link: str
    scale: float  # the factor of the scores in the link

    @classmethod
    def of(cls, net: TranslatedPipeline, format: str) -> FinalTrees:
        """Take the trees of a translation; ``UnfaithfulOption`` if its last step is no sum of hard trees."""
        step = net.program.steps[-1]
        if not isinstance(step.module, HardTrees):
            raise UnfaithfulOption(_reason(net, format))
        if "predict_proba" in net.program.method_steps:
            raise UnfaithfulOption(
                f"format={format!r}: predict_proba of {step.name!r} is no function of its scores alone; choose "
                "format='torchscript' or 'onnx'."
            )
        if "score_samples" in net.head.methods:
            raise UnfaithfulOption(
                f"format={format!r}: the methods of {step.name!r} give no sum of its leaves; choose "
                "format='torchscript' or 'onnx'."
            )
        if net.head.link == "shares" and not _adds_up(step.module.ensemble()):
            raise UnfaithfulOption(
                f"format={format!r}: the tuned leaves of {step.name!r} are divided by their sum, which the format "
                "cannot do; choose format='onnx', 'exported' or 'c'."
            )
        return cls(
            step.module.ensemble(), _names(net, step), net.head.link, float(net.head.link_options.get("scale", 1.0))
        )

    def trees(self) -> Iterator[Tree]:
        """Trees with one number per leaf, one tree for each score in turn; the first round has the base as leaves.

        Leaves of a mean are divided by the number of trees. A leaf with a number for each score becomes a leaf in as
        many trees. Scores with fewer trees get empty trees.
        """
        ensemble = self.ensemble
        yield from (_leaf(value / ensemble.divisor) for value in ensemble.base)
        if ensemble.vector:
            for tree in range(ensemble.trees):
                yield from (_tree(ensemble, tree, score) for score in range(ensemble.outputs))
            return
        queues = [np.flatnonzero(ensemble.output == score).tolist() for score in range(ensemble.outputs)]
        for place in range(max(map(len, queues), default=0)):
            for queue in queues:
                yield _tree(ensemble, queue[place]) if place < len(queue) else _leaf(0.0)


def _adds_up(ensemble: TreeEnsemble) -> bool:
    """Whether the scores of every row add up to 1, so that dividing them by their sum changes nothing."""
    if not ensemble.vector:
        return False
    sums = ensemble.leaf_value.sum(axis=1)
    total = (ensemble.base.sum() + ensemble.trees * sums[:1].sum()) / ensemble.divisor
    return bool(np.allclose(sums, sums[:1], rtol=0, atol=1e-12) and abs(total - 1) < 1e-9)


def missing_left(tree: Tree) -> NDArray[np.bool_]:
    """Whether NaN goes left at each node: where NaN counts as 0, as 0 does; where NaN is no category, right."""
    plain = tree.missing == MISSING_NONE
    left: NDArray[np.bool_] = np.where(plain, tree.threshold >= 0, tree.default_left)
    for node in tree.categories:
        left[node] = not plain[node] and tree.default_left[node]
    return left


def _leaf(value: float) -> Tree:
    whole, flags = np.zeros(0, np.int64), np.zeros(0, np.bool_)
    return Tree(whole, np.zeros(0), flags, np.zeros(0, np.int8), whole, whole, np.array([value]), {})


def _tree(ensemble: TreeEnsemble, tree: int, score: int | None = None) -> Tree:
    nodes = slice(int(ensemble.node_start[tree]), int(ensemble.node_start[tree + 1]))
    leaves = ensemble.leaf_value[ensemble.leaf_start[tree] : ensemble.leaf_start[tree + 1]]
    return Tree(
        ensemble.feature[nodes],
        ensemble.threshold[nodes],
        ensemble.default_left[nodes],
        ensemble.missing[nodes],
        ensemble.left[nodes],
        ensemble.right[nodes],
        (leaves if score is None else leaves[:, score]) / ensemble.divisor,
        {
            node - nodes.start: ensemble.categories[node]
            for node in range(nodes.start, nodes.stop)
            if node in ensemble.categories
        },
    )


def _names(net: TranslatedPipeline, step: ProgramStep) -> list[str] | None:
    if net.encoder.names is None or any(take.slot != NUMBERS for take in step.takes):
        return None
    columns = [net.encoder.numbers[place] for _, place in step.places()]
    names = [net.encoder.names[column] for column in columns]
    valid = all(name and not FORBIDDEN & set(name) and name.isascii() for name in names)
    return names if valid and len(set(names)) == len(names) else None


def _reason(net: TranslatedPipeline, format: str) -> str:
    step = net.program.steps[-1]
    what, name = type(step.module).__name__, f"format={format!r} holds one sum of trees"
    others = "Choose format='onnx', 'exported' or 'c' for the whole translation."
    if isinstance(step.module, SoftTrees):
        return (
            f"{name}, and step {step.name!r} has soft trees at {step.module.level}. Export net.harden(valid), which "
            "has hard trees in the place of trees trained at L1 or L2."
        )
    if InstalledResiduals.of(net.program):
        return (
            f"{name}, and fine-tuning has added a residual model: tables of values and of interactions, which are no "
            f"trees. {others} To have trees only, translate with level='L1' or 'L2' and fit with a recipe that "
            "trains the trees."
        )
    return f"{name}, and the last step of this translation, {step.name!r}, is a {what}. {others}"
