"""Keeps the modes of modules, training or eval."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def kept_modes(module: nn.Module) -> Iterator[None]:
    """Give a module and each module inside of it its mode back at the end of the block."""
    modes = [(each, each.training) for each in module.modules()]
    try:
        yield
    finally:
        for each, training in modes:
            each.training = training
