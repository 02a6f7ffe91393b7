"""Nearest training rows. Ties are broken as in the source, by the order in which it visits the rows.

Everything is computed in float64 whatever the type of the rows, as rounding would choose other neighbours.
"""

from typing import ClassVar

import torch
from torch import Tensor

from windtunnel.errors import BadFile
from windtunnel.modules.base import Module, bounded, derived
from windtunnel.modules.distances import root, unit_rows
from windtunnel.modules.loops import while_loop
from windtunnel.modules.slices import row_blocks


def cache_blocks(x: Tensor, points: int) -> list[Tensor]:
    """``row_blocks`` of rows that fit into a cache with their distances to the points."""
    return row_blocks(x, points, 262144)


def reduced_distances(x: Tensor, points: Tensor, p: float) -> Tensor:
    """``[B, P]``, sum over the columns of |x_j - y_j|^p, or the greatest |x_j - y_j| where p is infinite.

    Column by column, as the source adds them up: equal distances are equal in the last bit too.
    """
    total = torch.zeros([x.shape[0], points.shape[0]], dtype=x.dtype, device=x.device)
    for column in range(points.shape[1]):
        total = add_column(total, x[:, column : column + 1] - points[:, column], p)
    return total


def add_column(total: Tensor, difference: Tensor, p: float) -> Tensor:
    """The reduced distance with the difference of one more column."""
    if p == 2.0:
        return total + difference * difference
    if p == 1.0:
        return total + difference.abs()
    if p == float("inf"):
        return torch.maximum(total, difference.abs())
    return total + difference.abs() ** p


def squared_lengths(x: Tensor) -> Tensor:
    """``[B]``, sum over the columns of x_j^2, by matrix products, which most often round as the source does."""
    if not torch.jit.is_scripting():  # type: ignore[attr-defined]
        if torch.compiler.is_exporting():
            return x.square().sum(dim=1)
    return torch.cat([(part @ part.T).diagonal() for part in torch.split(x, 64)])


def distance_of(reduced: Tensor, p: float) -> Tensor:
    """The distance that ``reduced_distances`` is a power of."""
    if p == 2.0:
        return root(reduced)
    if p == 1.0 or p == float("inf"):
        return reduced
    return reduced ** (1.0 / p)


def neighbour_weights(distance: Tensor, weighted: bool) -> Tensor:
    """1, or 1 / distance; where a distance is 0, 1 for such neighbours and 0 for the others."""
    if not weighted:
        return torch.ones_like(distance)
    same = distance == 0
    inverse = 1 / torch.where(same, torch.ones_like(distance), distance)
    return torch.where(same.any(dim=1, keepdim=True), same.to(distance.dtype), inverse)


def push(heap: Tensor, items: Tensor, value: Tensor, item: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
    """The heaps ``[R, k]``, and their items, with a value in the place of the greatest, in rows that are ``active``.

    Values and items are ``[R, 1]``, as is what says which rows are active. The children of place i are the places
    2 i + 1 and 2 i + 2; the greater child moves up, of equal ones the left.
    """
    size = heap.shape[1]
    place = torch.zeros_like(item)
    moving = active
    depth = 1
    while depth < size:
        left, right = 2 * place + 1, 2 * place + 2
        of_left = torch.where(left < size, heap.gather(1, left.clamp(max=size - 1)), -float("inf"))
        of_right = torch.where(right < size, heap.gather(1, right.clamp(max=size - 1)), -float("inf"))
        child = torch.where(of_left >= of_right, left, right).clamp(max=size - 1)
        moving = moving & (value < torch.maximum(of_left, of_right))
        source = torch.where(moving, child, place)
        heap = heap.scatter(1, place, heap.gather(1, source))
        items = items.scatter(1, place, items.gather(1, source))
        place = source
        depth = 2 * depth
    heap = heap.scatter(1, place, torch.where(active, value, heap.gather(1, place)))
    return heap, items.scatter(1, place, torch.where(active, item, items.gather(1, place)))


class NearestRows(Module):
    """The k training rows that are nearest to a row; of equally near ones those that the source keeps.

    The source walks over the rows (in a tree the nearer child first) and keeps the best k in a heap, where a new row
    takes the place of the worst one only if it is nearer. So which of several equally near rows are kept depends on the
    walk and on the heap; both are followed here for the rows where it matters.
    """

    FLOAT64: ClassVar[bool] = True
    points: Tensor  # [P, width], the training rows
    inorder: Tensor
    """int64 [P], the training rows in the order of the leaves of the tree; as they come where there is none."""
    leaf: Tensor  # int64 [P], the leaf of each place of ``inorder``
    # low, high: [nodes, width]: the box of each node; of a ball tree the centre, and its radius as [nodes, 1]
    low: Tensor
    high: Tensor
    k: int = bounded(1, 2**20)  # how many neighbours
    p: float  # the order of the norm
    search: str  # "kd_tree", "ball_tree", "brute", or "cosine" for one less the cosine
    centre: Tensor = derived()
    factors: Tensor = derived()
    squares: Tensor = derived()

    def __post_init__(self) -> None:
        if ((self.inorder < 0) | (self.inorder >= len(self.points))).any():
            raise BadFile(f"an order of rows beyond the {len(self.points)} rows")
        # |x - y|^2 = |x|^2 - 2 x.y + |y|^2: the source's own comparison by brute force, of the rows as they are; for
        # trees a quick one, of rows around their mean, as large numbers cancel.
        centre = torch.zeros_like(self.points[0]) if self.expands() else self.points.mean(dim=0)
        around = self.points - centre
        self.register_buffer("centre", centre, persistent=False)
        self.register_buffer("squares", squared_lengths(around), persistent=False)
        self.register_buffer(
            "factors", unit_rows(self.points) if self.search == "cosine" else -2 * around, persistent=False
        )

    def nearest(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """float64 [rows, width] -> distances [rows, k], in order up to rounding, and int64 [rows, k]."""
        rows = x.detach()
        if self.has_quick_search():
            chosen = self.quick_search(rows)
            return self.exact_distances(x, chosen), chosen
        compared, chosen = self.exact_search(rows)
        return (compared if self.search == "cosine" else self.exact_distances(x, chosen)), chosen

    def has_quick_search(self) -> bool:
        """Whether there is a quicker comparison than the source's own.

        By brute force and the Euclidean norm the source's is the quick one. A graph with a free number of rows cannot
        pick those that a quick one leaves in doubt.
        """
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            if torch.compiler.is_exporting():
                return False
        return self.k < self.points.shape[0] and not self.expands() and self.search != "cosine"

    def expands(self) -> bool:
        """Whether the source compares by |x|^2 - 2 x.y + |y|^2."""
        return self.search == "brute" and self.p == 2.0

    def exact_distances(self, x: Tensor, chosen: Tensor) -> Tensor:
        """The distances of the chosen training rows, [rows, k], by differences."""
        reduced = self.reduced_distances_to(x, chosen)
        if self.search == "brute":
            # Its heap begins with the greatest number: what is farther never enters.
            reduced = reduced.clamp(max=1.7976931348623157e308)
        return distance_of(reduced, self.p)

    def reduced_distances_to(self, x: Tensor, chosen: Tensor) -> Tensor:
        """``reduced_distances`` to the chosen training rows alone, [rows, k], equal in the last bit."""
        total = torch.zeros([x.shape[0], chosen.shape[1]], dtype=x.dtype, device=x.device)
        for column in range(self.points.shape[1]):
            total = add_column(total, x[:, column : column + 1] - self.points[:, column][chosen], self.p)
        return total

    def quick_search(self, x: Tensor) -> Tensor:
        """The neighbours by a quick comparison, int64 [rows, k]; doubtful rows go through ``exact_search``.

        A training row beyond the first k is at least as far as the quick distance of the one after them, less what
        rounding may add. Where the first k are nearer than that, they are the nearest, and no tie is cut.
        """
        candidates: list[Tensor] = []
        least: list[Tensor] = []
        for part in cache_blocks(x, self.points.shape[0]):
            values, order = self.approximate_distances(part).topk(self.k + 1, dim=1, largest=False)
            candidates.append(order[:, : self.k])
            least.append(self.lower_bound(part, values[:, self.k]))
        chosen = torch.cat(candidates)
        certain = self.reduced_distances_to(x, chosen).amax(dim=1) < torch.cat(least)
        doubtful = (~certain).nonzero().squeeze(1)
        if doubtful.shape[0] > 0:
            chosen = chosen.index_copy(0, doubtful, self.exact_search(x[doubtful])[1])
        return chosen

    def approximate_distances(self, x: Tensor) -> Tensor:
        """``reduced_distances`` but for rounding, and for a number for each row, [rows, width] -> [rows, P]."""
        if self.p == 2.0:
            return torch.addmm(self.squares, x - self.centre, self.factors.T)
        distance = torch.cdist(x, self.points, self.p)
        return distance if self.p == 1.0 or self.p == float("inf") else distance**self.p

    def lower_bound(self, x: Tensor, value: Tensor) -> Tensor:
        """What ``reduced_distances`` cannot be below where ``approximate_distances`` gives a value, both [rows]."""
        terms = self.points.shape[1] + 8.0 + (0.0 if self.p == float("inf") else self.p)
        scale = value
        if self.p == 2.0:
            length = (x - self.centre).square().sum(dim=1)
            value, scale = value + length, length + self.squares.max()
        return value - 4 * terms * 2.0**-52 * scale - 2.0**-1000

    def exact_search(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What the source compares, and its neighbours, both [rows, k], by its own comparison with all of them."""
        values: list[Tensor] = []
        neighbours: list[Tensor] = []
        for part in cache_blocks(x, self.points.shape[0]):
            compared = self.compared(part)
            chosen = self.least(part, compared)
            values.append(compared.gather(1, chosen))
            neighbours.append(chosen)
        return torch.cat(values), torch.cat(neighbours)

    def least(self, x: Tensor, compared: Tensor) -> Tensor:
        """The k training rows with the least source distances, int64 [rows, k]; ties broken as by the source."""
        if self.k >= self.points.shape[0]:
            return compared.argsort(dim=1, stable=True)
        values, order = compared.topk(self.k + 1, dim=1, largest=False)
        chosen = order[:, : self.k]
        tied = values[:, self.k - 1] == values[:, self.k]
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            if torch.compiler.is_exporting():
                # A graph with a free number of rows cannot pick some of them.
                tied = tied.unsqueeze(1)
                return torch.where(tied, self.heap_search(x, compared, tied), chosen)
        rows = tied.nonzero().squeeze(1)
        if rows.shape[0] > 0:
            every = torch.ones([rows.shape[0], 1], dtype=torch.bool, device=x.device)
            chosen = chosen.index_copy(0, rows, self.heap_search(x[rows], compared[rows], every))
        return chosen

    def compared(self, x: Tensor) -> Tensor:
        """What the source compares, [rows, width] -> [rows, P]."""
        if self.search == "cosine":
            return (1 - unit_rows(x) @ self.factors.T).clamp(0.0, 2.0)
        if self.expands():
            lengths = squared_lengths(x).unsqueeze(1)
            return (x @ self.factors.T).add_(lengths).add_(self.squares).clamp_(min=0.0)
        return reduced_distances(x, self.points, self.p)

    def heap_search(self, x: Tensor, compared: Tensor, active: Tensor) -> Tensor:
        """The neighbours that a walk over all training rows leaves in a heap, int64 [rows, k], the nearest first.

        Only rows where ``active``, bool ``[rows, 1]``, is set walk.
        """
        order = self.visit_order(x)
        visited = compared.gather(1, order)
        heap = torch.full([x.shape[0], self.k], float("inf"), dtype=visited.dtype, device=visited.device)
        items = torch.zeros([x.shape[0], self.k], dtype=torch.int64, device=visited.device)
        last = torch.full([x.shape[0], 1], -1, dtype=torch.int64, device=visited.device)
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            if torch.compiler.is_exporting():
                state = (active, heap, items, last)
                _, heap, items, _ = while_loop(self.heap_step, state, (visited, order), visited.shape[1] + 1)
                return items.gather(1, heap.argsort(dim=1, stable=True))
        while bool(active.any()):
            active, heap, items, last = self.heap_step(active, heap, items, last, visited, order)
        return items.gather(1, heap.argsort(dim=1, stable=True))

    def heap_step(
        self, active: Tensor, heap: Tensor, items: Tensor, last: Tensor, visited: Tensor, order: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """One more training row in the heap of each row, the next one on its walk that is nearer than the worst.

        ``active`` bool and ``last`` ``[rows, 1]``: whether there was one, and which place of the walk; heap and items
        ``[rows, k]``; ``visited`` and ``order`` ``[rows, P]``: distances and training rows in the order of the walk.
        """
        places = torch.arange(visited.shape[1], device=visited.device)
        enters = active & (visited < heap[:, :1]) & (places > last)
        active = enters.any(dim=1, keepdim=True)
        first = enters.to(torch.int64).argmax(dim=1, keepdim=True)
        heap, items = push(heap, items, visited.gather(1, first), order.gather(1, first), active)
        return active, heap, items, torch.where(active, first, last)

    def visit_order(self, x: Tensor) -> Tensor:
        """The training rows in the order in which a search from each row meets them, int64 [rows, P]."""
        nodes = self.low.shape[0]
        if nodes <= 1:
            return self.inorder.unsqueeze(0).expand(x.shape[0], -1)
        bound = self.bounds(x)
        rank = torch.zeros([x.shape[0], 1], dtype=torch.int64, device=x.device)
        start = 1
        while start < nodes:
            level = bound[:, start : 2 * start + 1]
            later = (level[:, 0::2] > level[:, 1::2]).to(torch.int64)  # the right child comes first
            rank = torch.stack([2 * rank + later, 2 * rank + 1 - later], dim=2).flatten(1)
            start = 2 * start + 1
        place = torch.arange(self.inorder.shape[0], device=x.device)
        return self.inorder[(rank[:, self.leaf] * self.inorder.shape[0] + place).argsort(dim=1)]

    def bounds(self, x: Tensor) -> Tensor:
        """The least (reduced) distance to a row of each node, [rows, nodes]."""
        if self.search == "ball_tree":
            centre = distance_of(reduced_distances(x, self.low, self.p), self.p)
            return (centre - self.high[:, 0]).clamp(min=0.0)
        total = torch.zeros([x.shape[0], self.low.shape[0]], dtype=x.dtype, device=x.device)
        for column in range(self.low.shape[1]):
            value = x[:, column : column + 1]
            difference = (self.low[:, column] - value).clamp(min=0.0) + (value - self.high[:, column]).clamp(min=0.0)
            if self.p == float("inf"):
                total = torch.maximum(total, difference)
            elif self.p == 1.0:
                total = total + difference
            else:
                total = total + difference**self.p
        return total
