"""Functions of single numbers, by name."""

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from windtunnel.modules.base import Module


def differentiable_where(inside: Tensor, x: Tensor) -> Tensor:
    """``x``; outside, where the gradient of a function would be infinite, it becomes 0."""
    return torch.where(inside, x, x.detach()) if torch.is_grad_enabled() else x


def log1p(x: Tensor) -> Tensor:
    """log(1 + x)."""
    return torch.log1p(differentiable_where(x > -1, x))


def log(x: Tensor) -> Tensor:
    """log(x)."""
    return torch.log(differentiable_where(x > 0, x))


def log2(x: Tensor) -> Tensor:
    """log(x) / log(2)."""
    return torch.log2(differentiable_where(x > 0, x))


def log10(x: Tensor) -> Tensor:
    """log(x) / log(10)."""
    return torch.log10(differentiable_where(x > 0, x))


def sqrt(x: Tensor) -> Tensor:
    """x^(1/2)."""
    return torch.sqrt(differentiable_where(x > 0, x))


def cbrt(x: Tensor) -> Tensor:
    """x^(1/3), of negative numbers too."""
    inside = x != 0
    size = torch.where(inside, x.abs(), torch.ones_like(x))
    return torch.where(inside, torch.sign(x) * torch.pow(size, 1.0 / 3.0), x) + 0 * torch.where(torch.isnan(x), x, 0)


def square(x: Tensor) -> Tensor:
    """x^2."""
    return x * x


def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1."""
    return torch.where(torch.isnan(x), x, torch.sign(x))


def clip(x: Tensor, options: Tensor) -> Tensor:
    """x, held between options 0 and 1."""
    return torch.where(x > options[1], options[1], torch.where(x < options[0], options[0], x))


def nan_to_num(x: Tensor, options: Tensor) -> Tensor:
    """x, with options 0, 1 and 2 for NaN, infinity and minus infinity."""
    x = torch.where(torch.isnan(x), options[0], x)
    x = torch.where(x == math.inf, options[1], x)
    return torch.where(x == -math.inf, options[2], x)


def logit(x: Tensor) -> Tensor:
    """log(x / (1 - x))."""
    return torch.logit(differentiable_where((x > 0) & (x < 1), x))


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    function.__name__: function for function in (log1p, log, log2, log10, sqrt, cbrt, square, sign, logit)
} | {
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "absolute": torch.abs,
    "sin": torch.sin,
    "cos": torch.cos,
    "tanh": torch.tanh,
    "arctan": torch.atan,
    "sinh": torch.sinh,
    "arcsinh": torch.asinh,
    "negative": torch.neg,
    "expit": torch.sigmoid,
}
"""Functions without options, by their names in NumPy or SciPy; those defined here have finite gradients everywhere."""
WITH_OPTIONS = ("clip", "nan_to_num")
"""The functions that take three options, a tensor [3]."""


class Elementwise(Module):
    """One function of each number.

    y = f(x)
    """

    MAY_BE_NON_FINITE: ClassVar[bool] = True
    PER_COLUMN: ClassVar[tuple[str, ...]] = ()
    CHOICES = {"function": (*FUNCTIONS, *WITH_OPTIONS)}
    options: Tensor  # [3]: the bounds of "clip", the values of "nan_to_num"
    function: str  # a name in ``FUNCTIONS`` or ``WITH_OPTIONS``

    def __post_init__(self) -> None:
        self.apply_to = FUNCTIONS.get(self.function, square)  # not called for those with options

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, width]."""
        if self.function == "clip":
            return clip(x, self.options)
        if self.function == "nan_to_num":
            return nan_to_num(x, self.options)
        return self.apply_to(x)
