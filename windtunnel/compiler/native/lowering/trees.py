"""Hard trees."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from windtunnel.compiler.native.image import Fact, ImageWriter
from windtunnel.compiler.native.lowering.oblivious import oblivious
from windtunnel.compiler.native.lowering.registry import lowers
from windtunnel.compiler.native.lowering.successors import successors
from windtunnel.compiler.native.lowering.tree_layout import Walk
from windtunnel.compiler.native.lowering.tree_masks import masks
from windtunnel.modules.trees.forms.bitvectors import BitvectorTrees
from windtunnel.modules.trees.forms.gemm import GemmTrees
from windtunnel.modules.trees.forms.oblivious import ObliviousTrees
from windtunnel.modules.trees.forms.perfect import PerfectTrees
from windtunnel.modules.trees.forms.ranked_walk import RankedWalkTrees
from windtunnel.modules.trees.hard import HardTrees, TreeWalk
from windtunnel.modules.trees.leaves import LeafOneHot, TreeLeaves
from windtunnel.modules.trees.linear_leaves import LinearLeafTrees
from windtunnel.modules.trees.walk_layout import depths_of

NODE = np.dtype([("split", np.float64), ("follow", np.uint32), ("column", np.uint32)])
SET = 1 << 31
"""``WT_TREE_SET`` of ``trees.h``."""
BY_ORDER = (0, 1)
"""``WT_LOW`` and ``WT_HIGH`` of ``trees.h``: numbers that are not missing are compared as they are."""
BYTE, MOST_BYTE = 8, 255
"""``WT_BYTE`` of ``trees.h``, and the greatest byte."""
AT_ONCE = 8
"""``WT_TREES_AT_ONCE``."""
SUCCESSOR_ROWS = 4
"""``SUCCESSOR_ROWS`` of ``trees_successors.c``."""


@lowers(RankedWalkTrees)
@lowers(PerfectTrees)
@lowers(BitvectorTrees)
@lowers(ObliviousTrees)
@lowers(GemmTrees)
def _form(module: HardTrees, image: ImageWriter, columns: list[int]) -> list[int]:
    """The trees without what the form has laid out for torch."""
    return _scores(HardTrees.rebuild(module.state_dict(), module.facts()), image, columns)


@lowers(HardTrees)
@lowers(TreeLeaves)
def _scores(module: TreeWalk, image: ImageWriter, columns: list[int]) -> list[int]:
    walk, value, float32 = _walk(module), module.value.cpu().numpy(), int(module.reads == "float32")
    root = walk.root
    vector = module.vector and module.outputs != 1
    if module.vector and not vector:
        value = value[:, 0]
    trees = len(root) if vector else len(root) // max(1, module.outputs)
    score = np.zeros(len(root), np.int64) if vector else np.arange(len(root)) // max(1, trees)
    sums = (int(vector), module.base, float(module.divisor))
    nodes, columns_read = _nodes(module, walk, value)
    read, columns_read[:, 0] = np.unique(columns_read[:, 0], return_inverse=True)
    columns = [columns[feature] for feature in read.tolist()]
    if (by_level := oblivious(walk, value, score)) is not None:
        facts: tuple[Fact, ...] = (columns_read, float32, len(columns_read), *by_level.facts, *sums)
        return image.step("oblivious_trees", columns, module.outputs, *facts, scratch=by_level.scratch)
    columns = _as_bytes(walk, columns_read, columns, image)
    group_root, group_place, group_depth = _groups(walk)
    facts = (
        columns_read, len(columns_read), float32,
        nodes, walk.set_goes_right.astype(np.uint8), int(module.has_sets),
        root.astype(np.uint32), trees, group_root, group_place, group_depth, len(group_depth),
        value if vector else np.empty(0), *sums,
    )  # fmt: skip
    by_masks = masks(walk, value, score)
    scratch = max(8 * (len(columns_read) + 1) + 8 * SUCCESSOR_ROWS * (len(root) + AT_ONCE), by_masks.scratch)
    per_row = 8 * (len(columns_read) + 1) + 4
    few_rows = successors(walk, value, by_masks.cost)
    facts = (*facts, by_masks.rows, *by_masks.facts, *few_rows)
    return image.step("trees", columns, module.outputs, *facts, scratch=scratch, scratch_per_row=per_row)


@lowers(LeafOneHot)
def _leaf_one_hot(module: LeafOneHot, image: ImageWriter, columns: list[int]) -> list[int]:
    return image.step("leaf_one_hot", _scores(module, image, columns), module.columns)


@lowers(LinearLeafTrees)
def _linear_leaves(module: LinearLeafTrees, image: ImageWriter, columns: list[int]) -> list[int]:
    leaves = _scores(module, image, columns)
    used = module.used.t()  # [L, most used]
    coefficient = module.coefficient.detach()
    factor = coefficient.new_zeros(used.shape) if module.width == 0 else coefficient.gather(1, used % module.width)
    place = used.cpu().numpy().copy()
    place[place == module.width] = -1
    facts = (len(leaves), module.const, module.plain, place, factor, place.shape[1], module.tree_score)
    return image.step("linear_leaves", [*leaves, *columns], module.scores, *facts)


def _nodes(module: TreeWalk, walk: Walk, value: NDArray[np.float64]) -> tuple[NDArray[np.void], NDArray[np.uint32]]:
    """The nodes as C reads them, and feature and reading of each column of values, uint32 ``[C, 2]``."""
    used = np.unique(module.column.cpu().numpy()[walk.is_node])
    nodes = np.empty(len(walk.follow), NODE)
    nodes["follow"] = walk.follow
    nodes["split"] = np.where(walk.is_node, walk.split, np.arange(len(value)) if value.ndim > 1 else value)
    nodes["column"] = np.where(walk.is_node, walk.column, len(used))
    sets = walk.set_start > 0
    places = np.stack([walk.set_start[sets], walk.set_last[sets]], axis=1)
    nodes["split"][sets] = places.astype(np.uint32).reshape(-1).view(np.float64)
    nodes["column"][sets] += SET
    readings = np.array(module.readings or [0])
    return nodes, np.stack([used % module.width, readings[used // module.width]], axis=1).astype(np.uint32)


def _as_bytes(walk: Walk, columns_read: NDArray[np.uint32], columns: list[int], image: ImageWriter) -> list[int]:
    """Read columns as bytes where the image has them, which changes ``columns_read``; gives the columns to read."""
    packed: dict[int, int] = {}
    for place, (feature, reading) in enumerate(columns_read.tolist()):
        if reading not in BY_ORDER or (bytes_of := image.bytes_of.get(columns[feature])) is None:
            continue
        split = walk.split[walk.is_node & (walk.column == place)]
        if split.min() >= 0 and split.max() < MOST_BYTE:
            column, at = bytes_of
            columns_read[place] = len(columns) + packed.setdefault(column, len(packed)), BYTE + at
    columns = [*columns, *packed]
    read, columns_read[:, 0] = np.unique(columns_read[:, 0], return_inverse=True)
    return [columns[feature] for feature in read.tolist()]


def _walk(module: TreeWalk) -> Walk:
    names = ("root", "follow", "column", "split", "set_start", "set_last", "set_goes_right")
    root, follow, column, split, *sets = (getattr(module, name).cpu().numpy() for name in names)
    is_node = follow != np.arange(len(follow))
    place = np.zeros(len(follow), np.int64)
    place[is_node] = np.unique(column[is_node], return_inverse=True)[1]
    return Walk(root, follow, is_node, place, split.astype(np.float64), *sets)


def _groups(walk: Walk) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]:
    """Roots by depth, a multiple of ``AT_ONCE``, the place of each, and the depth of each group."""
    depth = depths_of(walk.root, walk.follow, walk.is_node)
    order = np.argsort(depth, kind="stable")
    more = -len(order) % AT_ONCE
    padded = np.concatenate([np.full(more, len(walk.follow) - 1), walk.root[order]])  # the last position is a leaf
    place = np.concatenate([len(order) + np.arange(more), order])
    deepest = np.concatenate([np.zeros(more, np.int64), depth[order]]).reshape(-1, AT_ONCE).max(axis=1, initial=0)
    return padded.astype(np.uint32), place.astype(np.uint32), deepest.astype(np.uint32)
