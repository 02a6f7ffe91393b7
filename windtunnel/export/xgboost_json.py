"""XGBoost's JSON format, written without XGBoost: the trees that a translation ends in."""

from __future__ import annotations

import json
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windtunnel.errors import UnfaithfulOption
from windtunnel.export.atomic_write import write_atomically
from windtunnel.export.tree_file import FinalTrees, Tree, missing_left
from windtunnel.modules.trees.ensemble import MISSING_ZERO
from windtunnel.program.translated import TranslatedPipeline

FORMAT = "xgboost"
# Link: the objective whose predict applies it, and what base_score is where the raw score starts from 0.
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
"""Objective -> the name of its parameters and what they are; the others have the same ones."""
NO_PARENT = 2147483647
MOST_CATEGORIES = 2**24
"""XGBoost reads codes as float32."""


def export(net: TranslatedPipeline, path: str | PathLike[str]) -> None:
    """Write the trees that a translation ends in as a model that ``xgboost.Booster(model_file=path)`` reads.

    ``predict`` of the booster gives what stands behind the link (probabilities of class 1 or of every class, values),
    with ``output_margin=True`` the raw scores, of the columns that reach the trees: ``net.tree_columns(rows)``, or
    what the pipeline in front of its last step gives. XGBoost goes left where a float32 number is less than the
    condition, so the condition is the float32 after the threshold, and rows that are float32 numbers decide alike.
    Leaves and their sums are float32, which keeps scores to about 1e-6 of the largest partial sum.

    Raises
    ------
    UnfaithfulOption
        The translation does not end in hard trees, or has what the format does not: zeros that are missing, or
        another link.
    """
    write_atomically(path, json.dumps(model(FinalTrees.of(net, FORMAT))).encode("ascii"))


def model(trees: FinalTrees) -> dict[str, Any]:
    """The whole file."""
    of = trees.ensemble
    if trees.link not in OBJECTIVES or trees.scale != 1:
        scaled = "" if trees.scale == 1 else f" of {trees.scale:g} times the score"
        raise UnfaithfulOption(
            f"format={FORMAT!r} has no objective whose predict gives the link {trees.link!r}{scaled}; it has "
            f"{', '.join(OBJECTIVES)} of the score itself. format='lightgbm' has more."
        )
    if (of.missing == MISSING_ZERO).any():
        raise UnfaithfulOption(
            f"format={FORMAT!r} takes only NaN for missing, and nodes of these trees take zeros for missing as well "
            "(zero_as_missing of LightGBM). Choose format='lightgbm' or 'onnx'."
        )
    if any(members.max(initial=0) >= MOST_CATEGORIES for members in of.categories.values()):
        raise UnfaithfulOption(f"format={FORMAT!r} holds no category codes of {MOST_CATEGORIES} and above.")
    objective, base_score = OBJECTIVES[trees.link]
    several = str(of.outputs if of.outputs > 1 else 0)
    classes = objective.startswith("multi")
    written = [_tree(number, one, of.width) for number, one in enumerate(trees.rounds())]
    categorical = {int(of.feature[node]) for node in of.categories}
    kinds = ["c" if column in categorical else "float" for column in range(of.width)] if categorical else []
    name, parameters = PARAMETERS.get(objective, ("reg_loss_param", {"scale_pos_weight": "1"}))
    parameters = {"num_class": several} if classes else parameters
    learner = {
        "attributes": {},
        "feature_names": trees.columns or [],
        "feature_types": kinds,
        "gradient_booster": {
            "model": {
                "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(written))},
                "iteration_indptr": list(range(0, len(written) + 1, of.outputs)),
                "tree_info": [number % of.outputs for number in range(len(written))],
                "trees": written,
            },
            "name": "gbtree",
        },
        "learner_model_param": {
            "base_score": base_score,
            "boost_from_average": "1",
            "num_class": several if classes else "0",
            "num_feature": str(of.width),
            "num_target": "1" if classes else str(of.outputs),
        },
        "objective": {"name": objective, name: parameters},
    }
    return {"learner": learner, "version": [2, 1, 0]}


def _tree(number: int, tree: Tree, width: int) -> dict[str, Any]:
    """One tree; the children of its node n stand at 1 + 2n and 2 + 2n, as XGBoost wants them side by side.

    A category of a set goes right here, so that the children of such nodes change sides.
    """
    nodes = len(tree.feature)
    sets = sorted(tree.categories)
    is_set = np.zeros(nodes, np.bool_)
    is_set[sets] = True
    below = np.stack([np.where(is_set, tree.right, tree.left), np.where(is_set, tree.left, tree.right)], axis=1)
    items = np.concatenate([[0 if nodes else -1], below.reshape(-1)])
    is_node = items >= 0
    node, place = items[is_node], np.flatnonzero(is_node)
    children = np.full((2, len(items)), -1)
    children[:, place] = 1 + 2 * node, 2 + 2 * node
    parents = np.full(len(items), NO_PARENT)
    parents[children[:, place]] = place
    place_of = np.zeros(nodes, np.int64)
    place_of[node] = place
    sizes = [len(tree.categories[one]) for one in sets]
    by_place = np.argsort(place_of[sets])  # XGBoost wants the nodes in their order
    starts = np.cumsum([0, *sizes])
    condition = np.empty(len(items), np.float32)
    condition[place] = np.where(is_set, np.float32(0), _after(tree.threshold))[node]
    condition[~is_node] = tree.leaf_value[-1 - items[~is_node]]

    def at_nodes(values: NDArray[Any]) -> list[int]:
        spread = np.zeros(len(items), np.int64)
        spread[place] = values[node]
        return spread.tolist()

    zeros = [0.0] * len(items)
    return {
        "base_weights": zeros,
        "categories": [int(code) for one in sets for code in tree.categories[one]],
        "categories_nodes": [int(place_of[sets[one]]) for one in by_place],
        "categories_segments": [int(starts[one]) for one in by_place],
        "categories_sizes": [sizes[one] for one in by_place],
        "default_left": at_nodes(missing_left(tree) ^ is_set),
        "id": number,
        "left_children": children[0].tolist(),
        "loss_changes": zeros,
        "parents": parents.tolist(),
        "right_children": children[1].tolist(),
        "split_conditions": [float(str(one)) for one in condition],  # the fewest digits that give it back
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
    """The first float32 above each threshold, the largest there is where that would be infinite."""
    largest = np.finfo(np.float32).max
    near = np.clip(threshold, -largest, largest).astype(np.float32)
    with np.errstate(over="ignore"):
        after = np.where(near > threshold, near, np.nextafter(near, np.float32(np.inf)))
    return np.minimum(after, largest)
