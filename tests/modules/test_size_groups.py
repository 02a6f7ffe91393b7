"""Soft trees in groups of similar size: the same scores and gradients as padded to the largest, with less padding."""

from itertools import combinations

import numpy as np
import pytest
import torch
from case import quick
from gradients import assert_same_gradients, learned
from hypothesis import given, strategies as st
from torch import Tensor

import windtunnel
from windtunnel.modules.trees.soft.size_groups import MOST, WORTH, group_by_size, select_group
from windtunnel.modules.trees.soft.trees import SoftTrees


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12))
def test_groups_hold_every_tree_once_and_pad_least(leaves: list[int]) -> None:
    groups, sizes = group_by_size(tuple(leaves)), [max(2, one) for one in leaves]
    assert sorted(tree for group in groups for tree in group.trees) == [*range(len(leaves))]
    assert all(max(sizes[tree] for tree in group.trees) == group.leaves for group in groups)
    steps, most = sorted(set(sizes)), max(sizes)

    def padded(ends: tuple[int, ...]) -> int:
        return sum(min(end for end in (*ends, most) if end >= size) for size in sizes)

    cuts = [ends for count in range(MOST) for ends in combinations(steps[:-1], count)]
    least = min(padded(ends) for ends in cuts)
    found = sum(len(group.trees) * group.leaves for group in groups)
    assert found == (least if least <= WORTH * len(sizes) * most else len(sizes) * most)


def ensemble(level: str) -> tuple[SoftTrees, Tensor]:
    """Trees of 2 to 16 leaves over columns with missing values and categories, float64."""
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 4))
    x[random.random(x.shape) < 0.1] = np.nan
    x[:, 3] = random.integers(0, 9, 400)
    label = (np.nan_to_num(x[:, 0]) * np.nan_to_num(x[:, 1]) > 0) ^ (x[:, 3] % 3 == 0)
    model = quick(n_estimators=12, num_leaves=16, min_child_samples=40, min_gain_to_split=3.0, cat_smooth=1.0)
    net = windtunnel.translate(model.fit(x, label, categorical_feature=[3]), level=level).soften()
    (trees,) = (one for one in net.modules() if isinstance(one, SoftTrees))
    return trees.double(), torch.from_numpy(x[:70])


@pytest.mark.parametrize("level", ["L2", "L4"])
def test_scores_and_gradients_are_those_of_the_padded_trees(level: str) -> None:
    trees, x = ensemble(level)
    assert len(trees.groups) > 1 and trees.any_category and trees.any_missing
    plain, ours = trees.plain_scores(x) + trees.base, trees(x)
    torch.testing.assert_close(ours, plain)
    assert_same_gradients(ours, plain, learned(trees))


def test_what_is_worked_on_is_less(monkeypatch: pytest.MonkeyPatch) -> None:
    trees, x = ensemble("L4")
    given: list[int] = []
    operation = select_group
    monkeypatch.setattr(
        "windtunnel.modules.trees.soft.trees.select_group",
        lambda of, group: (cut := operation(of, group), given.append(cut.path[:, 0].numel()))[0],
    )
    trees(x)
    assert len(given) == len(trees.groups) and sum(given) <= WORTH * trees.leaf_mask.numel()
