"""The text of a LightGBM booster as flat arrays of its trees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from lightgbm import Booster
from numpy.typing import NDArray

from windtunnel.modules.trees.ensemble import MISSING_NONE, NEAR_ZERO, TreeEnsemble
from windtunnel.modules.trees.hard import TreeWalk
from windtunnel.modules.trees.leaves import with_numbers
from windtunnel.modules.trees.linear_leaves import LinearLeafTrees


@dataclass(frozen=True)
class BoosterText:
    """The parts of a model's text: ``key=value`` lines of header and trees, ``[key: value]`` lines of parameters."""

    header: Mapping[str, str]
    trees: list[dict[str, str]]
    parameters: Mapping[str, str]


def read_text(booster: Booster) -> BoosterText:
    """The parts of the text, with the trees that ``predict`` uses: up to ``best_iteration`` after early stopping."""
    best = booster.best_iteration
    whole = booster.model_to_string(num_iteration=best if best > 0 else -1)
    body, _, rest = whole.partition("\nend of trees")
    head, *trees = body.split("\nTree=")
    inside = rest.partition("\nparameters:")[2].partition("\nend of parameters")[0]
    parameters = (line[1:-1].partition(": ") for line in inside.splitlines() if line.startswith("["))
    return BoosterText(_fields(head), [_fields(tree) for tree in trees], {key: value for key, _, value in parameters})


def _fields(block: str) -> dict[str, str]:
    """``key=value`` lines; a bare key, such as ``average_output``, has an empty value."""
    lines = (line.partition("=") for line in block.splitlines())
    return {key: value for key, _, value in lines}


def ensemble_of_text(text: BoosterText) -> TreeEnsemble:
    """The trees as flat arrays; leaf values of boosting=rf are to be divided by ``divisor``."""
    trees = text.trees
    outputs = int(text.header["num_tree_per_iteration"])
    leaves = np.array([int(tree["num_leaves"]) for tree in trees], np.int64)
    decision = _numbers(trees, "decision_type", np.int64)
    threshold = _numbers(trees, "threshold", np.float64)
    categories = _split_sets(trees, leaves - 1, threshold, (decision & 1).astype(np.bool_))
    return TreeEnsemble(
        width=int(text.header["max_feature_idx"]) + 1,
        node_start=np.cumsum([0, *(leaves - 1)]),
        leaf_start=np.cumsum([0, *leaves]),
        feature=_numbers(trees, "split_feature", np.int64),
        threshold=np.where(decision & 1, 0.0, _off_zero(threshold)),
        default_left=(decision & 2) > 0,
        # A missing category goes right, whatever the direction for missing numbers is.
        missing=np.where(decision & 1, MISSING_NONE, decision >> 2 & 3).astype(np.int8),
        left=_numbers(trees, "left_child", np.int64),
        right=_numbers(trees, "right_child", np.int64),
        leaf_value=_numbers(trees, "leaf_value", np.float64),
        output=np.arange(len(trees)) % outputs,
        base=np.zeros(outputs),
        categories=categories,
        feature_range=_feature_range(text.header["feature_infos"].split(" ")),
        leaf_cover=_leaf_cover(trees, leaves),
        divisor=float(max(1, len(trees) // outputs)) if "average_output" in text.header else 1.0,
    )


def _leaf_cover(trees: list[dict[str, str]], leaves: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """Training rows of each leaf; a tree without a split stores none and gets 1. None if a tree lacks the counts."""
    split = [tree for tree, count in zip(trees, leaves.tolist(), strict=True) if count > 1]
    counts = _numbers(split, "leaf_count", np.float64)
    if len(counts) != leaves[leaves > 1].sum():
        return None
    cover = np.ones(int(leaves.sum()))
    cover[np.repeat(leaves > 1, leaves)] = counts
    return cover


def linear_leaves(ensemble: TreeEnsemble, trees: list[dict[str, str]]) -> LinearLeafTrees:
    """Leaves that are ``leaf_const + leaf_coeff . x``, or ``leaf_value`` where one of their features is missing."""
    leaves = len(ensemble.leaf_value)
    const, coefficient = ensemble.leaf_value.copy(), np.zeros((leaves, ensemble.width))
    uses = np.zeros((leaves, ensemble.width), np.bool_)
    for tree, first in zip(trees, ensemble.leaf_start[:-1].tolist(), strict=True):
        if tree.get("is_linear", "0") == "0":
            continue
        counts = _numbers([tree], "num_features", np.int64)
        rows, columns = first + np.repeat(np.arange(len(counts)), counts), _numbers([tree], "leaf_features", np.int64)
        const[first : first + len(counts)] = _numbers([tree], "leaf_const", np.float64)
        coefficient[rows, columns] = _numbers([tree], "leaf_coeff", np.float64)
        uses[rows, columns] = True
    tensors = {
        "tree_score": ensemble.output,
        "const": const / ensemble.divisor,
        "plain": ensemble.leaf_value / ensemble.divisor,
        "coefficient": coefficient / ensemble.divisor,
        "uses": uses,
    }
    walk = TreeWalk.of(with_numbers(ensemble, np.arange(leaves)))
    values = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in tensors.items()}
    facts = walk.facts() | {"scores": ensemble.outputs}
    return LinearLeafTrees.rebuild(walk.state_dict() | values, facts)


def _numbers(trees: Iterable[Mapping[str, str]], key: str, dtype: Any) -> NDArray[Any]:
    """One array of the values of ``key`` in all the trees."""
    joined = " ".join(tree.get(key, "") for tree in trees)
    number = float if dtype is np.float64 else int
    return np.array([*map(number, joined.split())], dtype)


def _off_zero(threshold: NDArray[np.float64]) -> NDArray[np.float64]:
    """Move thresholds within ``NEAR_ZERO`` to its end, as LightGBM compares values up to there as zero."""
    rim = np.where(threshold < 0, np.nextafter(-NEAR_ZERO, -np.inf), NEAR_ZERO)
    return np.where(np.abs(threshold) <= NEAR_ZERO, rim, threshold)


def _split_sets(
    trees: list[dict[str, str]], counts: NDArray[np.int64], threshold: NDArray[np.float64], is_set: NDArray[np.bool_]
) -> dict[int, NDArray[np.int64]]:
    """Node -> categories that go left. ``threshold`` numbers the sets of a tree, each a run of 32-bit words of bits."""
    sets: dict[int, NDArray[np.int64]] = {}
    tree_of = np.repeat(np.arange(len(trees)), counts)
    parsed: dict[int, tuple[list[int], NDArray[np.uint8]]] = {}
    for node in np.flatnonzero(is_set).tolist():
        tree = int(tree_of[node])
        if tree not in parsed:
            words = np.array([*map(int, trees[tree]["cat_threshold"].split())], "<u4")
            parsed[tree] = [*map(int, trees[tree]["cat_boundaries"].split())], words.view(np.uint8)
        bounds, octets = parsed[tree]
        number = int(threshold[node])
        bits = np.unpackbits(octets[4 * bounds[number] : 4 * bounds[number + 1]], bitorder="little")
        sets[node] = np.flatnonzero(bits)
    return sets


def _feature_range(infos: list[str]) -> NDArray[np.float64]:
    """``[least:greatest]`` of a number, the codes of a category joined by ``:``, or ``none`` for a constant."""
    rows = []
    for info in infos:
        values = [*map(float, info[1:-1].split(":"))] if info.startswith("[") else category_codes(info)
        rows.append([min(values, default=np.nan), max(values, default=np.nan)])
    return np.array(rows, np.float64)


def category_codes(info: str) -> list[int]:
    """The category codes of a feature info without -1 (missing); none for a number."""
    if info.startswith("[") or info == "none":
        return []
    return [code for code in map(int, info.split(":")) if code >= 0]


def categorical_columns(text: BoosterText) -> list[int]:
    """The features declared categorical; without parameters in the text, those with category codes."""
    declared = text.parameters.get("categorical_feature", "")
    if declared:
        return sorted(map(int, declared.split(",")))
    return [column for column, info in enumerate(text.header["feature_infos"].split(" ")) if category_codes(info)]
