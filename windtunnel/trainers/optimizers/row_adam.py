"""Adam that updates a row of a large table only in the steps that visit it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Adam

from windtunnel.trainers.optimizers.visited_rows import VisitedRows


class RowAdam(Adam):
    """Adam, or AdamW, with moments for the visited rows of large tables only.

    In step t, for each row w with a gradient g, and for no other

        m <- b1 m + (1 - b1) g,  v <- b2 v + (1 - b2) g^2
        w <- w - rate sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps)

    as in ``torch.optim.SparseAdam``. Weight decay also acts on visited rows only: g <- g + decay w before the moments,
    or decoupled w <- w - rate decay w. A row that every c-th step visits decays at 1 / c of the rate. Other parameters
    have Adam's own updates. ``groups`` hold the large tables too.
    """

    def __init__(self, groups: Iterable[Any], tables: Iterable[VisitedRows], **options: Any) -> None:
        super().__init__(groups, **options)
        self.tables = {rows.table: rows for rows in tables}

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step; ``closure`` computes the gradients first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        gradients = {table: table.grad for table in self.tables}
        for table in gradients:
            table.grad = None  # Adam skips parameters without a gradient
        super().step()
        for group in self.param_groups:
            for table in group["params"]:
                if (gradient := gradients.get(table)) is not None:
                    self._step_rows(self.tables[table], gradient, group)
                    table.grad = gradient
        return loss

    @torch.no_grad()
    def _step_rows(self, visited: VisitedRows, gradient: Tensor, group: dict[str, Any]) -> None:
        gradient = gradient.coalesce()
        rows, slope = gradient.indices()[0], gradient.values()
        (b1, b2), rate, decay = group["betas"], group["lr"], group["weight_decay"]
        place, step = visited.places(rows), visited.steps + 1
        now = visited.table[rows] if decay else None
        if now is not None and not group["decoupled_weight_decay"]:
            slope = slope + decay * now
        first = torch.lerp(visited.first[place], slope, 1 - b1)
        second = torch.lerp(visited.second[place], slope.square(), 1 - b2)
        visited.first[place], visited.second[place] = first, second
        change = first / (second.sqrt() + group["eps"]) * (-rate * (1 - b2**step) ** 0.5 / (1 - b1**step))
        if now is not None and group["decoupled_weight_decay"]:
            change = change - rate * decay * now
        visited.step(rows, place, change)
