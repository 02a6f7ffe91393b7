"""XGBoost's JSON format, written without XGBoost: the trees of a translation's last step."""

from __future__ import annotations

import json
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from windtunnel.atomic_write import write_atomically
from windtunnel.errors import UnfaithfulOption, join_some, warn_caller
from windtunnel.export.tree_files.final_trees import FinalTrees, Tree, missing_left
from windtunnel.modules.trees.ensemble import MISSING_ZERO, TreeEnsemble
from windtunnel.program.translated import TranslatedPipeline

FORMAT = "xgboost"
# Link -> the objective whose predict applies it, and the base_score of a raw score of 0.
OBJECTIVES = {
    "identity": ("reg:squarederror", "0"),
    "probabilities": ("reg:squarederror", "0"),
    "shares": ("reg:squarederror", "0"),
    "sigmoid": ("binary:logistic", "5E-1"),
    "logistic": ("binary:logistic", "5E-1"),
    "softmax": ("multi:softprob", "0"),
    "exp": ("count:poisson", "1"),
}
PARAMETERS: dict[str, tuple[str, dict[str, str]]] = {
    "multi:softprob": ("softmax_multiclass_param", {}),
    "count:poisson": ("poisson_regression_param", {"max_delta_step": "0.7"}),
}
"""Objective -> the name and the values of its parameters; other objectives have those of ``reg_loss_param``."""
NO_PARENT = 2147483647
MOST_CATEGORIES = 2**24
"""XGBoost reads codes as float32."""


def export(net: TranslatedPipeline, path: str | PathLike[str]) -> None:
    """Write the trees of the last step as a model that ``xgboost.Booster(model_file=path)`` reads.

    ``predict`` of the booster gives the output of the link (probabilities of class 1 or of every class, values), with
    ``output_margin=True`` the raw scores. It takes the columns of the last step: ``net.tree_columns(rows)``, or the
    output of the pipeline before its last step. XGBoost goes left where a float32 number is less than the condition,
    so the condition is the float32 after the threshold, and float32 rows take the same branches. Leaves and their sums
    are float32, so that scores agree to about 1e-6 of the largest partial sum. Where different thresholds of a column
    are the same float32, rows between them take another branch; a warning names the column.

    Raises
    ------
    UnfaithfulOption
        The last step is no sum of hard trees, zeros count as missing, or the format has no such link.
    """
    trees = FinalTrees.of(net, FORMAT)
    content = json.dumps(model(trees)).encode("ascii")
    if columns := _rounded_columns(trees.ensemble):
        names = [f"column {column}" if trees.columns is None else trees.columns[column] for column in columns]
        warn_caller(
            f"XGBoost reads rows as float32, in which different thresholds of {join_some(names)} are equal: rows "
            "between them take another branch, and get other scores. format='lightgbm' compares float64.",
        )
    write_atomically(path, content)


def model(trees: FinalTrees) -> dict[str, Any]:
    """The whole file."""
    _check(trees)
    ensemble = trees.ensemble
    objective, base_score = OBJECTIVES[trees.link]
    several = str(ensemble.outputs if ensemble.outputs > 1 else 0)
    classes = objective.startswith("multi")
    written = [_tree(number, tree, ensemble.width) for number, tree in enumerate(trees.trees())]
    categorical = {int(ensemble.feature[node]) for node in ensemble.categories}
    kinds = ["c" if column in categorical else "float" for column in range(ensemble.width)] if categorical else []
    name, parameters = PARAMETERS.get(objective, ("reg_loss_param", {"scale_pos_weight": "1"}))
    parameters = {"num_class": several} if classes else parameters
    learner = {
        "attributes": {},
        "feature_names": trees.columns or [],
        "feature_types": kinds,
        "gradient_booster": {
            "model": {
                "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(written))},
                "iteration_indptr": list(range(0, len(written) + 1, ensemble.outputs)),
                "tree_info": [number % ensemble.outputs for number in range(len(written))],
                "trees": written,
            },
            "name": "gbtree",
        },
        "learner_model_param": {
            "base_score": base_score,
            "boost_from_average": "1",
            "num_class": several if classes else "0",
            "num_feature": str(ensemble.width),
            "num_target": "1" if classes else str(ensemble.outputs),
        },
        "objective": {"name": objective, name: parameters},
    }
    return {"learner": learner, "version": [2, 1, 0]}


def _rounded_columns(ensemble: TreeEnsemble) -> list[int]:
    """The columns with different thresholds that are the same float32; none where the source rounds rows itself."""
    if ensemble.reads == "float32":
        return []
    nodes = pd.DataFrame({"column": ensemble.feature, "threshold": ensemble.threshold})
    nodes = nodes.drop(index=[*ensemble.categories]).drop_duplicates()
    with np.errstate(over="ignore"):
        nodes["threshold"] = nodes["threshold"].astype(np.float32)
    return sorted(set(nodes.loc[nodes.duplicated(), "column"].tolist()))


def _check(trees: FinalTrees) -> None:
    """Raise ``UnfaithfulOption`` for a link, missing values or category codes that the format lacks."""
    if trees.link not in OBJECTIVES or trees.scale != 1:
        scaled = "" if trees.scale == 1 else f" of {trees.scale:g} times the score"
        raise UnfaithfulOption(
            f"format={FORMAT!r} has no objective whose predict gives the link {trees.link!r}{scaled}; it has "
            f"{', '.join(OBJECTIVES)} of the score itself. format='lightgbm' has more."
        )
    if (trees.ensemble.missing == MISSING_ZERO).any():
        raise UnfaithfulOption(
            f"format={FORMAT!r} has only NaN as a missing value, and nodes of these trees have zero as well "
            "(zero_as_missing of LightGBM). Choose format='lightgbm' or 'onnx'."
        )
    if any(members.max(initial=0) >= MOST_CATEGORIES for members in trees.ensemble.categories.values()):
        raise UnfaithfulOption(f"format={FORMAT!r} holds no category codes of {MOST_CATEGORIES} and above.")


def _tree(number: int, tree: Tree, width: int) -> dict[str, Any]:
    """One tree; the children of its node n are at 1 + 2n and 2 + 2n, as XGBoost takes siblings side by side.

    XGBoost sends a category of the set to the right, so that the children of such nodes change sides.
    """
    nodes = len(tree.feature)
    sets = sorted(tree.categories)
    is_set = np.zeros(nodes, np.bool_)
    is_set[sets] = True
    children_of = np.stack([np.where(is_set, tree.right, tree.left), np.where(is_set, tree.left, tree.right)], axis=1)
    items = np.concatenate([[0 if nodes else -1], children_of.reshape(-1)])
    is_node = items >= 0
    node, place = items[is_node], np.flatnonzero(is_node)
    children = np.full((2, len(items)), -1)
    children[:, place] = 1 + 2 * node, 2 + 2 * node
    parents = np.full(len(items), NO_PARENT)
    parents[children[:, place]] = place
    place_of = np.zeros(nodes, np.int64)
    place_of[node] = place
    sizes = [len(tree.categories[owner]) for owner in sets]
    by_place = np.argsort(place_of[sets])  # XGBoost takes the nodes in ascending order
    starts = np.cumsum([0, *sizes])
    condition = np.empty(len(items), np.float32)
    condition[place] = np.where(is_set, np.float32(0), _after(tree.threshold))[node]
    condition[~is_node] = tree.leaf_value[-1 - items[~is_node]]

    def at_nodes(values: NDArray[Any]) -> list[int]:
        all_items = np.zeros(len(items), np.int64)
        all_items[place] = values[node]
        return all_items.tolist()

    zeros = [0.0] * len(items)
    return {
        "base_weights": zeros,
        "categories": [int(code) for owner in sets for code in tree.categories[owner]],
        "categories_nodes": [int(place_of[sets[index]]) for index in by_place],
        "categories_segments": [int(starts[index]) for index in by_place],
        "categories_sizes": [sizes[index] for index in by_place],
        "default_left": at_nodes(missing_left(tree) ^ is_set),
        "id": number,
        "left_children": children[0].tolist(),
        "loss_changes": zeros,
        "parents": parents.tolist(),
        "right_children": children[1].tolist(),
        "split_conditions": [float(str(value)) for value in condition],  # the fewest digits that round to it
        "split_indices": at_nodes(tree.feature),
        "split_type": at_nodes(is_set),
        "sum_hessian": zeros,
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(width),
            "num_nodes": str(len(items)),
            "size_leaf_vector": "1",
        },
    }


def _after(threshold: NDArray[np.float64]) -> NDArray[np.float32]:
    """The first float32 above each threshold, the largest finite one at most."""
    largest = np.finfo(np.float32).max
    near = np.clip(threshold, -largest, largest).astype(np.float32)
    with np.errstate(over="ignore"):
        after = np.where(near > threshold, near, np.nextafter(near, np.float32(np.inf)))
    return np.minimum(after, largest)
