"""Hard trees as ONNX's ``TreeEnsemble`` operator, which runs in the runtime's C++ and not as tensor arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from windtunnel.compiler.strategies import has_forms
from windtunnel.modules.trees.forms.tree_form import TreeForm
from windtunnel.modules.trees.hard import HardTrees, TreeWalk

DOMAIN, OPERATOR = "windtunnel", "Trees"
"""The placeholder of an ensemble in an exported graph, which ``put_nodes`` replaces."""
ML, ML_VERSION = "ai.onnx.ml", 5
"""The operator set of TreeEnsemble with float64 nodes and sums."""
LEQ, SUM, NO_TRANSFORM = 0, 1, 0


class NodeTrees(nn.Module):
    """The sums of hard trees by one ``ai.onnx.ml.TreeEnsemble`` node.

    Tensor arithmetic prepares the columns of the nodes as in ``HardTrees``: a set of categories becomes a column of 0
    and 1, a zero that counts as missing becomes infinity. The operator handles NaN. If a leaf has a value for every
    score, the operator gives the position of the leaf, and the values are added here. The trees may have any form;
    ``place`` is their position among the ensembles of the program.

    Shape
    -----
    forward : float32 or float64 [B, width] -> the same [B, K]
    """

    rejected_rows = HardTrees.rejected_rows
    rejects_by_itself = HardTrees.rejects_by_itself

    def __init__(self, trees: HardTrees, place: int) -> None:
        super().__init__()
        self.trees = TreeForm.rebuild(trees.state_dict(), trees.facts())
        self.place = place
        # The operator has a direction of NaN for each node.
        self.plain = not self.trees.has_columns and set(self.trees.readings) <= {TreeWalk.LOW, TreeWalk.HIGH}

    def forward(self, x: Tensor) -> Tensor:
        """Raw scores of the rows."""
        trees = self.trees
        rows = x.to(trees.split.dtype)
        read = (rows if self.plain else trees._values(rows)).to(torch.float64)
        count = len(trees.root) if trees.vector else trees.outputs
        output: Tensor = torch.onnx.ops.symbolic(
            f"{DOMAIN}::{OPERATOR}",
            (read,),
            {"place": self.place},
            dtype=torch.float64,
            shape=(x.shape[0], count),
            version=1,
        )
        if trees.vector:
            leaves = trees.value.index_select(0, output.to(torch.int64).reshape(-1))
            output = trees.base + leaves.view(x.shape[0], count, trees.outputs).sum(1)
        return (output / trees.divisor).to(x.dtype)

    def attributes(self) -> dict[str, Any]:
        """The attributes of the operator: nodes, leaves and the target of each leaf."""
        from onnx import numpy_helper

        trees = self.trees
        root, follow, is_node = trees._positions()
        column, split = trees._nodes()
        nodes, leaves = np.flatnonzero(is_node), np.flatnonzero(~is_node)
        weights = (leaves if trees.vector else trees.value.cpu().numpy()[leaves]).astype(np.float64)
        targets = self._targets(root, follow, is_node)[leaves]
        number = np.empty(len(follow), np.int64)  # among the nodes, or among the leaves
        number[nodes], number[leaves] = np.arange(len(nodes)), np.arange(len(leaves))
        start, bare = number[root], ~is_node[root]
        # A tree without a split: the operator needs a node, both of whose branches lead to the leaf.
        only = number[root[bare]]
        start[bare] = len(nodes) + np.arange(len(only))
        if not trees.vector:
            # The base, as the first tree of each score: sums are rounded in the order in which they are added.
            only = np.append(only, len(leaves) + np.arange(trees.outputs))
            start = np.append(len(nodes) + len(only) - trees.outputs + np.arange(trees.outputs), start)
            weights = np.append(weights, trees.base.cpu().numpy())
            targets = np.append(targets, np.arange(trees.outputs))
        readings = np.array(trees.readings or [TreeWalk.LOW])
        reading = readings[np.minimum(column // max(1, trees.width), len(readings) - 1)]
        feature = column % max(1, trees.width) if self.plain else column
        below = {"true": follow[nodes], "false": follow[nodes] + 1}
        return {
            "n_targets": len(root) if trees.vector else trees.outputs,
            "aggregate_function": SUM,
            "post_transform": NO_TRANSFORM,
            "tree_roots": start.tolist(),
            "nodes_featureids": _joined(feature[nodes], 0 * only),
            "nodes_splits": numpy_helper.from_array(np.append(split[nodes], np.zeros(len(only)))),
            "nodes_modes": numpy_helper.from_array(np.full(len(nodes) + len(only), LEQ, np.uint8)),
            "nodes_missing_value_tracks_true": _joined(reading[nodes] == TreeWalk.LOW, 0 * only),
            **{f"nodes_{way}nodeids": _joined(number[child], only) for way, child in below.items()},
            **{f"nodes_{way}leafs": _joined(~is_node[child], 0 * only + 1) for way, child in below.items()},
            "leaf_targetids": targets.tolist(),
            "leaf_weights": numpy_helper.from_array(weights),
        }

    def _targets(self, root: NDArray[np.int64], follow: NDArray[np.int64], is_node: NDArray[Any]) -> NDArray[np.int64]:
        """The output column of each leaf."""
        trees = self.trees
        each = 1 if trees.vector else max(1, len(root) // max(1, trees.outputs))
        target = np.zeros(len(follow), np.int64)
        at, of = root, np.arange(len(root)) // each
        while len(at):
            target[at] = of
            inner = is_node[at]
            at, of = np.concatenate([follow[at[inner]], follow[at[inner]] + 1]), np.tile(of[inner], 2)
        return target


def _joined(nodes: NDArray[Any], only: NDArray[Any]) -> list[int]:
    """The values of all nodes, then of the nodes added to trees without a split."""
    return np.append(nodes.astype(np.int64), only).tolist()


def with_nodes(module: nn.Module) -> list[NodeTrees]:
    """Replace all hard trees of a module by ``NodeTrees``, and return these in order."""
    replaced: list[NodeTrees] = []
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if has_forms(child) and len(child.root):
                replaced.append(NodeTrees(child, len(replaced)))
                setattr(parent, name, replaced[-1])
    return replaced


def put_nodes(model: Any, trees: Sequence[NodeTrees]) -> None:
    """Replace the placeholders of an ONNX model by ``TreeEnsemble`` nodes."""
    if not trees:
        return
    from onnx import helper

    for node in model.graph.node:
        if node.domain == DOMAIN and node.op_type == OPERATOR:
            options = {attribute.name: attribute.i for attribute in node.attribute}
            attributes = trees[options["place"]].attributes()
            ensemble = helper.make_node(
                "TreeEnsemble", list(node.input), list(node.output), node.name, domain=ML, **attributes
            )
            node.CopyFrom(ensemble)
    others = [opset for opset in model.opset_import if opset.domain not in (DOMAIN, ML)]
    del model.opset_import[:]
    model.opset_import.extend([*others, helper.make_opsetid(ML, ML_VERSION)])
