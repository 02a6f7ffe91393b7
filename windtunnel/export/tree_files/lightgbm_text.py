"""LightGBM's text format, written without LightGBM: the trees of a translation's last step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windtunnel.atomic_write import write_atomically
from windtunnel.errors import UnfaithfulOption
from windtunnel.export.tree_files.final_trees import FinalTrees, Tree, missing_left
from windtunnel.modules.trees import TreeEnsemble
from windtunnel.program.translated import TranslatedPipeline

FORMAT = "lightgbm"
CATEGORICAL, DEFAULT_LEFT, MISSING_SHIFT = 1, 2, 2
"""Bits of a node's decision_type; its third and fourth bits are the kind of missing value, numbered as ours."""
OBJECTIVES: dict[str, Callable[[int, float], str]] = {
    "identity": lambda outputs, scale: "regression" if outputs == 1 else "",
    "probabilities": lambda outputs, scale: "",
    "shares": lambda outputs, scale: "",
    "sigmoid": lambda outputs, scale: f"binary sigmoid:{scale:.17g}",
    "logistic": lambda outputs, scale: f"binary sigmoid:{scale:.17g}",
    "softmax": lambda outputs, scale: f"multiclass num_class:{outputs}",
    "sigmoids": lambda outputs, scale: f"multiclassova num_class:{outputs} sigmoid:{scale:.17g}",
    "exp": lambda outputs, scale: "poisson",
    "log1p_exp": lambda outputs, scale: "cross_entropy_lambda",
    "signed_square": lambda outputs, scale: "regression sqrt",
}
"""Link -> the objective whose predict applies it; empty where predict gives the scores themselves."""


def export(net: TranslatedPipeline, path: str | PathLike[str]) -> None:
    """Write the trees of the last step as a model that ``lightgbm.Booster(model_file=path)`` reads.

    ``predict`` of the booster gives the output of the link (probabilities of class 1 or of every class, values), with
    ``raw_score=True`` the raw scores. It takes the columns of the last step: ``net.tree_columns(rows)``, or the output
    of the pipeline before its last step. Where the translation rounds rows to float32, each threshold is the largest
    float64 number that is rounded down, so that float64 rows take the same branches. An infinite number goes where a
    very large one goes. The file has no counts of rows, so that ``pred_contrib`` cannot be computed.

    Raises
    ------
    UnfaithfulOption
        The last step is no sum of hard trees, a missing category goes left, or the format has no such link.
    """
    write_atomically(path, text(FinalTrees.of(net, FORMAT)).encode("ascii"))


def text(trees: FinalTrees) -> str:
    """The whole file."""
    ensemble = trees.ensemble
    if trees.link not in OBJECTIVES:
        raise UnfaithfulOption(
            f"format={FORMAT!r} has no objective whose predict gives the link {trees.link!r}; it has "
            f"{', '.join(OBJECTIVES)}."
        )
    blocks = [_tree(number, tree, ensemble) for number, tree in enumerate(trees.trees())]
    objective = OBJECTIVES[trees.link](ensemble.outputs, trees.scale)
    header = {
        "version": "v4",
        "num_class": ensemble.outputs,
        "num_tree_per_iteration": ensemble.outputs,
        "label_index": 0,
        "max_feature_idx": ensemble.width - 1,
        **({"objective": objective} if objective else {}),
        "feature_names": " ".join(trees.columns or [f"Column_{column}" for column in range(ensemble.width)]),
        "feature_infos": " ".join(_infos(ensemble)),
        "tree_sizes": " ".join(str(len(block)) for block in blocks),
    }
    head = "tree\n" + "".join(f"{key}={value}\n" for key, value in header.items())
    tail = "end of trees\n\nfeature_importances:\n\nparameters:\nend of parameters\n\npandas_categorical:null\n"
    return f"{head}\n{''.join(blocks)}{tail}"


def _tree(number: int, tree: Tree, ensemble: TreeEnsemble) -> str:
    """The block of a tree; its sets of categories are runs of 32-bit words, and their nodes have the set's number."""
    if wrong := [node for node, left in enumerate(missing_left(tree)) if node in tree.categories and left]:
        raise UnfaithfulOption(
            f"format={FORMAT!r} sends every missing category to the right, and tree {number} sends those of column "
            f"{int(tree.feature[wrong[0]])} to the left. Choose format='xgboost' or 'onnx', or give missing values a "
            "category of their own."
        )
    sets, bounds = [_words(tree.categories[node]) for node in sorted(tree.categories)], [0]
    for words in sets:
        bounds.append(bounds[-1] + len(words))
    threshold = _boundaries(tree.threshold) if ensemble.reads == "float32" else tree.threshold
    threshold = np.clip(threshold, -np.finfo(np.float64).max, np.finfo(np.float64).max)
    threshold[sorted(tree.categories)] = np.arange(len(sets))
    decision = tree.missing.astype(np.int64) << MISSING_SHIFT | DEFAULT_LEFT * tree.default_left
    decision[sorted(tree.categories)] = CATEGORICAL
    fields: dict[str, str | int] = {
        "num_leaves": len(tree.leaf_value),
        "num_cat": len(sets),
        "split_feature": _joined(tree.feature),
        "split_gain": _joined(0 * tree.feature),
        "threshold": _joined(threshold),
        "decision_type": _joined(decision),
        "left_child": _joined(tree.left),
        "right_child": _joined(tree.right),
        "leaf_value": _joined(tree.leaf_value),
    }
    if sets:
        fields |= {"cat_boundaries": _joined(bounds), "cat_threshold": _joined(np.concatenate(sets))}
    fields |= {"is_linear": 0, "shrinkage": 1}
    return f"Tree={number}\n" + "".join(f"{key}={value}\n" for key, value in fields.items()) + "\n\n"


def _boundaries(threshold: NDArray[np.float64]) -> NDArray[np.float64]:
    """The largest float64 numbers that, rounded to float32, are not above the thresholds."""
    with np.errstate(over="ignore"):
        below = threshold.astype(np.float32)
        below = np.where(below > threshold, np.nextafter(below, np.float32(-np.inf)), below)
        above = np.nextafter(below, np.float32(np.inf))
        middle = below.astype(np.float64) / 2 + above.astype(np.float64) / 2
        rounds_up = middle.astype(np.float32) > below
    return np.where(
        np.isfinite(below) & np.isfinite(above), np.where(rounds_up, np.nextafter(middle, -np.inf), middle), threshold
    )


def _words(members: NDArray[np.int64]) -> NDArray[np.uint32]:
    bits = np.zeros(32 * (int(members.max(initial=0)) // 32 + 1), np.uint8)
    bits[members] = 1
    return np.packbits(bits, bitorder="little").view("<u4")


def _joined(values: Iterable[Any]) -> str:
    return " ".join(f"{value:.17g}" if isinstance(value, float) else str(value) for value in values)


def _infos(ensemble: TreeEnsemble) -> list[str]:
    """``[least:greatest]`` of numbers, the codes of categories joined by ``:``, ``none`` for what no tree reads."""
    codes: dict[int, list[NDArray[np.int64]]] = {}
    for node, members in ensemble.categories.items():
        codes.setdefault(int(ensemble.feature[node]), []).append(members)
    infos = ["none"] * ensemble.width
    for column in np.unique(ensemble.feature).tolist():
        seen = ensemble.threshold[ensemble.feature == column]
        seen = seen[np.abs(seen) < 1e30] if ensemble.feature_range is None else ensemble.feature_range[column]
        if column in codes:
            infos[column] = ":".join(map(str, np.unique(np.concatenate(codes[column])))) or "0"
        elif len(seen) and np.isfinite(seen).all():
            infos[column] = f"[{seen.min():.17g}:{seen.max():.17g}]"
        else:
            infos[column] = "[0:0]"
    return infos
