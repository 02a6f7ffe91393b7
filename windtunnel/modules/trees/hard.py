"""Exact inference of a tree ensemble: every row walks down every tree."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.errors import BadFile
from windtunnel.modules.base import Module, bounded, derived
from windtunnel.modules.trees.ensemble import NEAR_ZERO, TreeEnsemble
from windtunnel.modules.trees.fixed_precision import FixedPrecision
from windtunnel.modules.trees.walk_layout import CODE, FLAG, HIGH, LOW, ZERO, positions_of, walk_layout


class TreeWalk(FixedPrecision, Module, kw_only=True):
    """The base of ``HardTrees`` and the modules of leaf numbers: every row walks down every tree.

    Rows are compared in float64, or rounded to float32 first if the source rounds them (``reads``). Rounded rows are
    compared with the largest float32 that is not above the threshold. Leaf values are summed in float64, tree by tree
    in the order of the source, so that ties of scores stay ties. Nothing trains: every tensor is a buffer, named and
    typed as in ``TreeEnsemble``, and keeps its type whatever the module is cast to.

    The nodes are laid out in pairs: the children of node n sit next to each other, at T + 2n and T + 2n + 1, after the
    T roots. A step of the walk is then ``follow[at] + (value > split[at])``, and a leaf follows to itself.
    """

    COPIES: ClassVar[bool] = False
    # Of ``walk_layout``.
    LOW, HIGH, FLAG, ZERO, CODE = LOW, HIGH, FLAG, ZERO, CODE
    NEAR_ZERO = NEAR_ZERO  # TorchScript sees no constants outside of a module
    # No category: beyond what a 32-bit integer holds, and exact in float32.
    NO_CODE = 2147483648.0
    __constants__: ClassVar[list[str]] = ["LOW", "HIGH", "FLAG", "ZERO", "CODE", "NEAR_ZERO", "NO_CODE"]

    CHOICES = {"reads": ("float64", "float32"), "data_at": ("unknown", "threshold", "next_above")}

    width: int = bounded(0, 2**24)  # number of input features
    # Down to ``base`` as in ``TreeEnsemble``:
    node_start: Tensor
    leaf_start: Tensor
    feature: Tensor
    threshold: Tensor
    default_left: Tensor
    missing: Tensor
    left: Tensor
    right: Tensor
    leaf_value: Tensor
    output: Tensor
    base: Tensor
    category_node: Tensor  # int64 [C], the nodes that split on a set of categories
    # category_start, category: int64 [C + 1] and int64, set c is ``category[category_start[c]:category_start[c + 1]]``
    category_start: Tensor
    category: Tensor
    feature_range: Tensor  # float64 [width, 2], or [0, 2] where the model stores none
    leaf_cover: Tensor = torch.empty(0, dtype=torch.float64)  # [L], or [0] where the model stores none
    divisor: float = 1.0  # what the sums are divided by
    reads: str = "float64"  # "float64" or "float32", see ``TreeEnsemble``
    data_at: str = "unknown"  # see ``TreeEnsemble``
    column: Tensor = derived()
    feature_at: Tensor = derived()
    split: Tensor = derived()  # of the type that ``reads`` says
    follow: Tensor = derived()
    value: Tensor = derived()
    root: Tensor = derived()
    set_start: Tensor = derived()
    set_last: Tensor = derived()
    set_goes_right: Tensor = derived()
    depth: int = derived()
    outputs: int = derived()
    vector: bool = derived()
    readings: list[int] = derived()
    has_sets: bool = derived()
    same_reading: bool = derived()
    row_cost: int = derived()

    def __post_init__(self) -> None:
        ensemble = self.ensemble()
        _check(ensemble)
        self.outputs, self.vector = ensemble.outputs, ensemble.vector
        self.has_sets = len(ensemble.categories) > 0
        self.depth, self.readings, walk = walk_layout(ensemble)
        self.register_derived(self.threshold.device, **walk)
        self.same_reading = not self.has_sets and set(self.readings) <= {self.LOW, self.HIGH}
        self.row_cost = len(self.root)
        self.arrange()

    def cast(self, dtype: torch.dtype) -> None:
        """Take rows of ``dtype``; thresholds that are values of the data are rounded to float32 as the rows are."""
        super().cast(dtype)
        if dtype == torch.float32 and self.data_at == "threshold" and self.reads == "float64":
            self.threshold.copy_(self.threshold.to(torch.float32))
            self.split = self.split.to(torch.float32)
            self.reads = "float32"

    def with_thresholds(self, threshold: NDArray[np.float64]) -> Self:
        """The same trees with other thresholds."""
        return self.rebuild(self.state_dict() | {"threshold": torch.from_numpy(threshold)}, self.facts())

    def arrange(self) -> None:
        """Register the buffers that another form of the trees computes with; they are not saved."""

    @classmethod
    def of(cls, ensemble: TreeEnsemble) -> Self:
        """Build the module that computes the scores of an ensemble; it shares no memory with it."""
        nodes = sorted(ensemble.categories)
        sets = [np.asarray(ensemble.categories[node], np.int64) for node in nodes]
        bounds, cover = ensemble.feature_range, ensemble.leaf_cover
        arrays = {
            "category_node": np.array(nodes, np.int64),
            "category_start": np.cumsum([0, *map(len, sets)], dtype=np.int64),
            "category": np.concatenate([*sets, np.empty(0, np.int64)]),
            "feature_range": np.empty((0, 2)) if bounds is None else bounds,
            "leaf_cover": np.empty(0) if cover is None else np.asarray(cover, np.float64),
        }
        arrays |= {name: getattr(ensemble, name) for name in _DTYPES}
        tensors: dict[str, Any] = {
            name: torch.from_numpy(np.array(value, _DTYPES.get(name))) for name, value in arrays.items()
        }
        facts = {name: getattr(ensemble, name) for name in ("width", "divisor", "reads", "data_at")}
        return cls(**facts, **tensors)

    def ensemble(self) -> TreeEnsemble:
        """Give back the ensemble that this module was made of, bit for bit."""
        start = self.category_start.tolist()
        category = _array(self.category)
        buffer: dict[str, Any] = {name: _array(getattr(self, name)) for name in _DTYPES}
        return TreeEnsemble(
            width=self.width,
            categories={n: category[start[c] : start[c + 1]] for c, n in enumerate(self.category_node.tolist())},
            feature_range=_array(self.feature_range) if len(self.feature_range) else None,
            leaf_cover=_array(self.leaf_cover) if len(self.leaf_cover) else None,
            divisor=self.divisor,
            reads=self.reads,
            data_at=self.data_at,
            **buffer,
        )

    def features(self) -> list[int]:
        """The features that some node reads, ascending."""
        return sorted(set(self.feature.tolist()))

    def select_columns(self, wanted: Sequence[int], needed: Sequence[int], width: int) -> Module:
        """The same trees over the needed features, with all of their outputs."""
        tensors = self.state_dict()
        place = torch.zeros(width, dtype=torch.int64, device=self.feature.device)
        place[list(needed)] = torch.arange(len(needed), device=place.device)
        tensors["feature"] = place[self.feature]
        if len(self.feature_range):
            tensors["feature_range"] = self.feature_range[list(needed)]
        return self.rebuild(tensors, self.facts() | {"width": len(needed)})

    def scores_in_slices(self, x: Tensor) -> Tensor:
        """Raw scores of the rows, in slices that stay in the processor's cache."""
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            if torch.compiler.is_compiling():
                # A graph with a free batch size cannot hold a loop over rows; its compiler does the blocking.
                return self._scores(x)
        at_once = 1 << 25 if x.is_cuda else 1 << 16
        rows = max(1, at_once // max(1, self.row_cost))
        if x.shape[0] <= rows:
            return self._scores(x)
        scores = torch.empty((x.shape[0], self.outputs), dtype=x.dtype, device=x.device)
        for start in range(0, x.shape[0], rows):
            scores[start : start + rows] = self._scores(x[start : start + rows])
        return scores

    def _scores(self, x: Tensor) -> Tensor:
        trees = self.root.shape[0] if self.vector else self.root.shape[0] // max(1, self.outputs)
        if trees == 0:
            return (self.base / self.divisor).to(x.dtype).repeat(x.shape[0], 1)
        at = self._leaves(x)  # [b * trees]
        if trees == 1 and (self.vector or self.outputs == 1):
            # One tree per score: base and divisor are applied to each leaf, not to each row.
            values = ((self.value + self.base) / self.divisor).index_select(0, at)
            return values.view(x.shape[0], self.outputs).to(x.dtype)
        values = self.value.index_select(0, at)
        along = 1 if self.vector else 2  # where the trees of a score stand
        shape = [x.shape[0], trees, self.outputs] if self.vector else [x.shape[0], self.outputs, trees]
        values = values.view(shape)
        # Added one after the other, from the base on, as in the sources: the order decides how a sum is rounded.
        values.select(along, 0).add_(self.base)
        return (values.cumsum_(along).select(along, trees - 1) / self.divisor).to(x.dtype)

    def _leaves(self, x: Tensor) -> Tensor:
        """The position of the leaf that each row falls into in each tree, ``[b * trees]``."""
        split, columns = self.split, self.column
        readings = x.to(split.dtype)
        if self._same_reading(readings):
            columns = self.feature_at
        else:
            readings = self._readings(readings)  # [b, readings * width]
        rows, trees = x.shape[0], self.root.shape[0]
        at = self.root.unsqueeze(0)  # [1, trees] for all rows, [b, trees] from the first step on
        for _ in range(self.depth):
            flat = at.view(-1)
            column = columns.index_select(0, flat).view_as(at).expand(rows, trees)
            value = readings.gather(1, column)
            goes_right = value > split.index_select(0, flat).view_as(at)
            if self.has_sets:
                goes_right = goes_right | self._right_by_set(value, at)
            at = self.follow.index_select(0, flat).view_as(at) + goes_right.to(torch.int64)
        return at.expand(rows, trees).reshape(-1)

    def _right_by_set(self, value: Tensor, at: Tensor) -> Tensor:
        """Whether categories ``[b, n]`` go right at positions ``[n]`` or ``[b, n]``; never at a node without a set."""
        code = value.clamp(-1.0, self.NO_CODE).to(torch.int64) + 1
        last = self.set_last.index_select(0, at.reshape(-1)).view_as(at)
        start = self.set_start.index_select(0, at.reshape(-1)).view_as(at)
        # Not their minimum, which ONNX Runtime gets wrong where they are over 2^31 apart.
        place = torch.where(code < last, code, last) + start
        return self.set_goes_right.index_select(0, place.reshape(-1)).view_as(place)

    def _same_reading(self, x: Tensor) -> bool:
        """Whether nodes can read the features as they are: readings differ in missing values only, and none is."""
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            if torch.compiler.is_compiling():
                return False
        # The sum is NaN if a value is missing; also for infinities of both signs, which all readings leave as they are.
        return self.same_reading and not x.is_cuda and not bool(torch.isnan(x.sum()))

    def _readings(self, x: Tensor) -> Tensor:
        """``[b, width]`` -> ``[b, readings * width]``: x once for each way in which some node reads its feature."""
        parts: list[Tensor] = []
        for reading in self.readings:
            if reading == self.CODE:
                # XGBoost takes every negative number for no category, LightGBM cuts it to an integer first.
                whole = torch.floor(x) if self.reads == "float32" else torch.trunc(x)
                known = (whole >= 0) & (whole < self.NO_CODE)
                code = torch.where(known, whole, torch.full_like(x, self.NO_CODE))
                parts.append(torch.where(torch.isnan(x), torch.full_like(x, -1.0), code))
            elif reading == self.LOW or reading == self.HIGH:
                # One pass over the rows; to find missing values and then replace them takes two slow ones.
                replacement = float("inf") if reading == self.HIGH else -float("inf")
                parts.append(torch.nan_to_num(x, nan=replacement, posinf=float("inf"), neginf=-float("inf")))
            else:
                missing = torch.isnan(x)
                if reading >= self.ZERO:
                    missing = missing | (x.abs() <= self.NEAR_ZERO)
                if reading % self.ZERO == self.LOW:
                    parts.append(torch.where(missing, torch.full_like(x, -float("inf")), x))
                elif reading % self.ZERO == self.HIGH:
                    parts.append(torch.where(missing, torch.full_like(x, float("inf")), x))
                else:
                    parts.append(missing.to(x.dtype))
        if len(parts) == 1:
            return parts[0]
        return torch.cat(parts, dim=1) if len(parts) > 0 else x


class HardTrees(TreeWalk):
    """Sum over trees of the value of the leaf that a row falls into, plus the base, as the source computes it.

    Examples
    --------
    >>> stump = TreeEnsemble(1, *map(np.array, ([0, 1], [0, 2], [0], [0.5], [True], np.zeros(1, np.int8))),
    ...     *map(np.array, ([-1], [-2], [1.0, 2.0], [0], [0.0])))
    >>> HardTrees.of(stump)(torch.tensor([[0.5], [0.6]]))
    tensor([[1.],
            [2.]])
    """

    def forward(self, x: Tensor) -> Tensor:
        """float32 or float64 [B, width] -> the same [B, K], for any B from 0 up."""
        return self.scores_in_slices(x)

    def required_columns(self, wanted: Sequence[int], width: int) -> list[int] | None:
        """The features that are read; for some of the scores all of them, as trees are kept together."""
        return self.features() if len(wanted) == self.outputs else None

    @torch.jit.unused
    def goes_right(self, x: Tensor) -> Tensor:
        """Whether a row goes right at each node, in the order of ``TreeEnsemble``, bool ``[B, N]``."""
        place = torch.from_numpy(positions_of(self.ensemble())[: len(self.feature)]).to(x.device)
        value = self._readings(x.to(self.split.dtype)).index_select(1, self.column[place])
        right = value > self.split[place]
        return right | self._right_by_set(value, place) if self.has_sets else right

    @torch.jit.unused
    def leaf_values(self, x: Tensor) -> Tensor:
        """The value of the leaf that each row falls into, ``[B, K, trees of a score]``; 0 where a score has fewer."""
        return self.value[self.leaf_positions(x)]

    @torch.jit.unused
    def leaf_positions(self, x: Tensor) -> Tensor:
        """The position in ``value`` of the leaf that each row falls into, int64 ``[B, K, trees of a score]``.

        ``[B, 1, trees]`` where a leaf holds a value for each score.
        """
        rows = max(1, (1 << 16) // max(1, self.row_cost))
        parts = [self._leaves(part) for part in torch.split(x, rows)]
        return torch.cat(parts).view(x.shape[0], 1 if self.vector else self.outputs, -1)


_DTYPES: dict[str, Any] = {
    "node_start": np.int64,
    "leaf_start": np.int64,
    "feature": np.int64,
    "threshold": np.float64,
    "default_left": np.bool_,
    "missing": np.int8,
    "left": np.int64,
    "right": np.int64,
    "leaf_value": np.float64,
    "output": np.int64,
    "base": np.float64,
}


def _array(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().cpu().numpy().copy()


def _check(ensemble: TreeEnsemble) -> None:
    """Say what is wrong with tensors from a file before an index runs out of bounds."""
    nodes, leaves = len(ensemble.feature), len(ensemble.leaf_value)
    per_node = (ensemble.threshold, ensemble.default_left, ensemble.missing, ensemble.left, ensemble.right)
    node_counts, leaf_counts = np.diff(ensemble.node_start), np.diff(ensemble.leaf_start)
    wrong = []
    if any(len(array) != nodes for array in per_node):
        wrong.append("the arrays over nodes differ in length")
    if len(node_counts) != len(leaf_counts) or len(node_counts) != len(ensemble.output):
        wrong.append("the arrays over trees differ in length")
    elif (node_counts < 0).any() or (leaf_counts != node_counts + 1).any():
        wrong.append("a tree does not have one leaf more than it has nodes")
    if ensemble.node_start[[0, -1]].tolist() != [0, nodes] or ensemble.leaf_start[[0, -1]].tolist() != [0, leaves]:
        wrong.append("the trees do not cover the nodes and leaves")
    if not _within(ensemble.feature, ensemble.width):
        wrong.append(f"a node reads a feature that is not in 0..{ensemble.width - 1}")
    if not _within(ensemble.output, ensemble.outputs):
        wrong.append(f"a tree adds to a score that is not in 0..{ensemble.outputs - 1}")
    if not _within(np.array(list(ensemble.categories), np.int64), nodes):
        wrong.append("a set of categories belongs to no node")
    if np.isnan(ensemble.threshold).any() or any((members < 0).any() for members in ensemble.categories.values()):
        wrong.append("a threshold is NaN or a category negative")
    cover = ensemble.leaf_cover
    if cover is not None and (len(cover) != leaves or not np.isfinite(cover).all() or (cover < 0).any()):
        wrong.append("leaf_cover is not a number of 0 or more for each leaf")
    if ensemble.vector and ensemble.leaf_value.shape[1] != ensemble.outputs:
        wrong.append(f"leaves hold {ensemble.leaf_value.shape[1]} values for {ensemble.outputs} scores")
    if not ensemble.divisor > 0:
        wrong.append(f"divisor={ensemble.divisor} is not above 0")
    if wrong:
        raise BadFile(f"these tensors are not a tree ensemble: {'; '.join(wrong)}")


def _within(values: NDArray[np.int64], end: int) -> bool:
    return bool(((values >= 0) & (values < end)).all())
