"""Gradients of two computations of the same thing, compared."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def learned(module: nn.Module) -> list[Tensor]:
    """The parameters that are trained and not empty."""
    return [one for one in module.parameters() if one.requires_grad and one.numel()]


def assert_same_gradients(one: Tensor, other: Tensor, wanted: Sequence[Tensor]) -> None:
    """Both outputs have the same gradients, for a random gradient of the output."""
    weight = torch.randn_like(one)
    for first, second in zip(*(torch.autograd.grad((y * weight).sum(), wanted) for y in (one, other)), strict=True):
        torch.testing.assert_close(first, second)
