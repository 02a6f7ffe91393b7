"""Two embedding tables and their inner product."""

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from windtunnel.modules.base import Module, learned


class FactorModel(Module):
    """What a user makes of an item, by the vectors of both.

    y = mean + b_u + c_i + <p_u, q_i>

    The last row of each table is that of unknown ones.

    Examples
    --------
    >>> users, items = torch.tensor([[0.5, 2.0], [0.0, 0.0]]), torch.tensor([[0.0, 3.0], [0.0, 0.0]])
    >>> FactorModel(torch.ones(1), users, items)(torch.tensor([[0.0, 0.0], [0.0, torch.nan]])).tolist()
    [[7.5], [1.5]]
    """

    KINDS: ClassVar[dict[str, str]] = {"users": "table", "items": "table"}
    mean: Tensor = learned()  # [1]
    users: Tensor = learned()  # [U + 1, 1 + factors], b_u and p_u
    items: Tensor = learned()  # [I + 1, 1 + factors], c_i and q_i

    def forward(self, codes: Tensor) -> Tensor:
        """[B, 2], codes of user and item from 0, NaN where unknown -> [B, 1]."""
        user, item = self.looked_up(codes[:, 0], self.users), self.looked_up(codes[:, 1], self.items)
        match = (user[:, 1:] * item[:, 1:]).sum(dim=1, keepdim=True)
        return self.mean + user[:, :1] + item[:, :1] + match

    def looked_up(self, codes: Tensor, table: Tensor) -> Tensor:
        """The rows of a table, ``[B, 1 + factors]``."""
        unknown = torch.full_like(codes, table.shape[0] - 1)
        return functional.embedding(torch.where(torch.isnan(codes), unknown, codes).to(torch.int64), table)
