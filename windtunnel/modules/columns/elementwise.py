"""Functions of single numbers, by name."""

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from windtunnel.modules.base import Module

# All take the numbers [B, width] and three options, a tensor [3].


def differentiable_where(inside: Tensor, x: Tensor) -> Tensor:
    """``x``; outside, where the gradient of a function would be infinite, it becomes 0."""
    return torch.where(inside, x, x.detach()) if torch.is_grad_enabled() else x


def log1p(x: Tensor, options: Tensor) -> Tensor:
    """log(1 + x)."""
    return torch.log1p(differentiable_where(x > -1, x))


def log(x: Tensor, options: Tensor) -> Tensor:
    """log(x)."""
    return torch.log(differentiable_where(x > 0, x))


def log2(x: Tensor, options: Tensor) -> Tensor:
    """log(x) / log(2)."""
    return torch.log2(differentiable_where(x > 0, x))


def log10(x: Tensor, options: Tensor) -> Tensor:
    """log(x) / log(10)."""
    return torch.log10(differentiable_where(x > 0, x))


def exp(x: Tensor, options: Tensor) -> Tensor:
    """e^x."""
    return torch.exp(x)


def exp2(x: Tensor, options: Tensor) -> Tensor:
    """2^x."""
    return torch.exp2(x)


def expm1(x: Tensor, options: Tensor) -> Tensor:
    """e^x - 1."""
    return torch.expm1(x)


def sqrt(x: Tensor, options: Tensor) -> Tensor:
    """x^(1/2)."""
    return torch.sqrt(differentiable_where(x > 0, x))


def cbrt(x: Tensor, options: Tensor) -> Tensor:
    """x^(1/3), of negative numbers too."""
    inside = x != 0
    size = torch.where(inside, x.abs(), torch.ones_like(x))
    return torch.where(inside, torch.sign(x) * torch.pow(size, 1.0 / 3.0), x) + 0 * torch.where(torch.isnan(x), x, 0)


def square(x: Tensor, options: Tensor) -> Tensor:
    """x^2."""
    return x * x


def absolute(x: Tensor, options: Tensor) -> Tensor:
    """|x|."""
    return torch.abs(x)


def sign(x: Tensor, options: Tensor) -> Tensor:
    """-1, 0 or 1."""
    return torch.where(torch.isnan(x), x, torch.sign(x))


def sin(x: Tensor, options: Tensor) -> Tensor:
    """sin(x), x in radians."""
    return torch.sin(x)


def cos(x: Tensor, options: Tensor) -> Tensor:
    """cos(x), x in radians."""
    return torch.cos(x)


def tanh(x: Tensor, options: Tensor) -> Tensor:
    """tanh(x)."""
    return torch.tanh(x)


def arctan(x: Tensor, options: Tensor) -> Tensor:
    """The angle whose tangent is x, in radians."""
    return torch.atan(x)


def sinh(x: Tensor, options: Tensor) -> Tensor:
    """(e^x - e^-x) / 2."""
    return torch.sinh(x)


def arcsinh(x: Tensor, options: Tensor) -> Tensor:
    """log(x + sqrt(x^2 + 1))."""
    return torch.asinh(x)


def negative(x: Tensor, options: Tensor) -> Tensor:
    """-x."""
    return -x


def clip(x: Tensor, options: Tensor) -> Tensor:
    """x, held between options 0 and 1."""
    return torch.where(x > options[1], options[1], torch.where(x < options[0], options[0], x))


def nan_to_num(x: Tensor, options: Tensor) -> Tensor:
    """x, with options 0, 1 and 2 for NaN, infinity and minus infinity."""
    x = torch.where(torch.isnan(x), options[0], x)
    x = torch.where(x == math.inf, options[1], x)
    return torch.where(x == -math.inf, options[2], x)


def expit(x: Tensor, options: Tensor) -> Tensor:
    """1 / (1 + e^-x)."""
    return torch.sigmoid(x)


def logit(x: Tensor, options: Tensor) -> Tensor:
    """log(x / (1 - x))."""
    return torch.logit(differentiable_where((x > 0) & (x < 1), x))


FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    function.__name__: function
    for function in (
        log1p, log, log2, log10, exp, exp2, expm1, sqrt, cbrt, square, absolute, sign, sin, cos, tanh, arctan, sinh,
        arcsinh, negative, clip, nan_to_num, expit, logit,
    )
}  # fmt: skip


class Elementwise(Module):
    """One function of each number.

    y = f(x)

    Examples
    --------
    >>> import torch
    >>> Elementwise(torch.zeros(3), "square")(torch.tensor([[3.0, -2.0]])).tolist()
    [[9.0, 4.0]]
    """

    MAY_BE_NON_FINITE: ClassVar[bool] = True
    PER_COLUMN: ClassVar[tuple[str, ...]] = ()
    options: Tensor  # [3]: the bounds of "clip", the values of "nan_to_num"
    function: str  # a name in ``FUNCTIONS``

    def __post_init__(self) -> None:
        self.apply_to = FUNCTIONS[self.function]

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, width]."""
        return self.apply_to(x, self.options)
