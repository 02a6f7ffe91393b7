"""Dropout in the trainable steps of a pipeline while it is trained."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from windtunnel.program.program import Program, steps_read


@contextlib.contextmanager
def dropout_at(module: nn.Module, program: Program | None, rate: float) -> Iterator[None]:
    """Drop outputs at random within the context, in training mode.

    Modules that have a ``dropout`` attribute, the soft trees, get the rate. The other trainable steps of a program drop
    entries of their output, except those whose output no step reads: these are the scores.
    """
    layers: list[Any] = [layer for layer in module.modules() if has_dropout(layer)]
    before = [layer.dropout for layer in layers]
    dropped = dropped_modules(program) if rate and program is not None else []
    hooks = [step.register_forward_hook(DropToMean(rate)) for step in dropped]
    try:
        for layer in layers:
            layer.dropout = rate
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for layer, value in zip(layers, before, strict=True):
            layer.dropout = value


def dropped_modules(program: Program) -> list[nn.Module]:
    """The trainable modules of a program whose output another step reads, without those that drop by themselves."""
    steps = list(program.steps)
    read = set[int]().union(*map(steps_read, steps))
    return [
        step.module
        for position, step in enumerate(steps)
        if position in read
        and any(parameter.requires_grad for parameter in step.module.parameters())
        and not any(map(has_dropout, step.module.modules()))
    ]


class DropToMean:
    """Forward hook: each entry of the output ``[B, K]`` becomes the mean of its column with probability ``rate``.

    The mean is that of the batch, missing values left out. Zero would be a category or a number like any other to the
    trees behind, and the usual factor 1 / (1 - rate) would carry values over their thresholds.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __call__(self, module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        """The output, some of its entries replaced in training mode."""
        if not module.training:
            return output
        mean = output.detach().nanmean(dim=0, keepdim=True)
        return torch.where(torch.rand_like(output) < self.rate, mean.expand_as(output), output)


def has_dropout(module: nn.Module) -> bool:
    """Whether a module drops by itself, at the rate in its attribute ``dropout``."""
    return isinstance(getattr(module, "dropout", None), float)
