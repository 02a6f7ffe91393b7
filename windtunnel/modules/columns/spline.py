"""B-spline bases of columns."""

import torch
from torch import Tensor

from windtunnel.modules.base import Module, bounded
from windtunnel.modules.slices import cache_slices, join_slices


def bases(x: Tensor, knots: Tensor, degree: int) -> Tensor:
    """All B-splines at x, by the recursion of Cox and de Boor; outside, the polynomials of the nearest interval.

    ``x`` ``[B, width]``, ``knots`` ``[width, T]`` -> ``[B, width, T - degree - 1]``. At one place degree + 1 of them
    are not 0, and these alone are worked out.
    """
    count = knots.shape[1] - degree - 1
    inner = knots[:, degree : count + 1].contiguous()
    at = torch.searchsorted(inner, x.detach().t().contiguous(), right=True) - 1 + degree
    at = at.clamp(degree, count - 1).t()  # [B, width], the interval that x lies in
    knot = knots.t()
    near = [knot.gather(0, at + away) for away in range(1 - degree, degree + 1)]  # the knots around x
    y = [torch.ones_like(x)]
    for d in range(1, degree + 1):
        # Each spline of the degree before adds to two of this one, which is one interval wider.
        parts = [torch.zeros_like(x)]
        for r in range(d):
            begin, end = near[degree - d + r], near[degree + r]
            width = end - begin
            there = width > 0
            part = y[r] / torch.where(there, width, torch.ones_like(width)) * there  # in this order, as in SciPy
            parts[r] = parts[r] + part * (end - x)
            parts.append(part * (x - begin))
        y = parts
    place = torch.stack([at + (r - degree) for r in range(degree + 1)], dim=2)
    # Zeros elsewhere; where x is infinite, NaN everywhere, as SciPy has it.
    zero = (x - x if degree > 0 else torch.zeros_like(x)).unsqueeze(2)
    return zero.repeat(1, 1, count).scatter(2, place, torch.stack(y, dim=2) + zero)


class Spline(Module):
    """The values of the B-splines of each column.

    y_{c, j} = B_j(x_c); beyond ``low`` and ``high``, with "constant" and "linear", start_j + (x - low) start_slope_j
    and end_j + (x - high) end_slope_j. A missing number gives zeros. Computed in float64 whatever the type of the
    program.

    Examples
    --------
    >>> knots, none = torch.tensor([[-1.0, 0.0, 1.0, 2.0]]), torch.zeros(1, 2)
    >>> hat = Spline(knots, knots[:, 1], knots[:, 2], none, none, none, none, 1, "continue", True)
    >>> hat(torch.tensor([[0.25]])).tolist()
    [[0.75, 0.25]]
    """

    knots: Tensor  # [width, T], ascending, in the unit of the column
    low: Tensor  # [width], where extrapolation begins
    high: Tensor  # [width], where extrapolation begins
    # start, start_slope, end, end_slope: [width, n], values and slopes of the splines there
    start: Tensor
    start_slope: Tensor
    end: Tensor
    end_slope: Tensor
    degree: int = bounded(0, 25)
    extrapolation: str  # "constant", "linear", "continue", "periodic" or "error"
    bias: bool  # whether the last spline of each column is given
    takes_missing: bool = False  # whether the source takes missing (and infinite) numbers

    def cast(self, dtype: torch.dtype) -> None:
        """Take numbers of ``dtype``: knots, which may be seen values, are rounded as the numbers are."""
        self.knots, self.low, self.high = (knots.to(dtype).double() for knots in (self.knots, self.low, self.high))

    def has_bits_of_source(self) -> bool:
        """It computes in the order of the source."""
        return True

    def rejected_rows(self, x: Tensor) -> Tensor | None:
        """Rows beyond the knots, where the source raises on them, and with missing numbers unless it takes them."""
        rejected = ~torch.isfinite(x) & (not self.takes_missing)
        if self.extrapolation == "error":
            number, degree = x.double(), self.degree
            rejected = rejected | (number < self.knots[:, degree]) | (number > self.knots[:, -degree - 1])
        return rejected.any(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, width * n], n less one without ``bias``."""
        return join_slices([self._splines(part) for part in cache_slices(x, 2 * self.start.numel())])

    def _splines(self, x: Tensor) -> Tensor:
        missing = torch.isnan(x)
        knots = self.knots.double()
        first, last = knots[:, self.degree], knots[:, knots.shape[1] - self.degree - 1]
        number = torch.where(missing, first.to(x.dtype), x).double()
        ends = self.extrapolation == "constant" or self.extrapolation == "linear"
        if self.extrapolation == "periodic":
            span = last - first
            turned = first + torch.remainder(number - first, torch.where(span > 0, span, torch.ones_like(span)))
            y = bases(torch.where(span > 0, turned, torch.zeros_like(turned)), knots, self.degree)
            count = y.shape[2] - self.degree
            wrapped = torch.zeros_like(y[:, :, :count])
            wrapped[:, :, : self.degree] = y[:, :, count:]
            y = y[:, :, :count] + wrapped
        elif ends:
            y = bases(torch.minimum(torch.maximum(number, first), last), knots, self.degree)
            if self._everywhere(x):
                y = self._continued(y, number)
            else:
                beyond = ((number < self.low) | (number > self.high)).any(dim=1).nonzero()[:, 0]
                y = y.index_copy(0, beyond, self._continued(y[beyond], number[beyond]))
        else:
            y = bases(number, knots, self.degree)
        if self._everywhere(x) or bool(missing.any()):
            y = torch.where(missing.unsqueeze(2), torch.zeros_like(y), y)
        if not self.bias:
            y = y[:, :, : y.shape[2] - 1]
        return y.flatten(1).to(x.dtype)

    def _everywhere(self, x: Tensor) -> bool:
        """Whether all rows go through the code for missing and outlying numbers, as in graphs and on GPUs."""
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            if torch.compiler.is_compiling():
                return True
        return x.is_cuda

    def _continued(self, y: Tensor, number: Tensor) -> Tensor:
        """The values in the place of the splines beyond the ends, ``[B, width, n]``."""
        below, above = number < self.low, number > self.high
        y = torch.where((below | above).unsqueeze(2), torch.zeros_like(y), y)
        y = y + continued(number - self.low, below, self.start.double(), self.start_slope.double())
        return y + continued(number - self.high, above, self.end.double(), self.end_slope.double())


def continued(way: Tensor, there: Tensor, value: Tensor, slope: Tensor) -> Tensor:
    """A value and a slope beyond an end: value + way * slope where ``there``, else 0: ``[B, width, n]``."""
    way = torch.where(there, way, torch.zeros_like(way)).unsqueeze(2)
    rise = torch.where(slope == 0, torch.zeros_like(slope), way * slope)
    return torch.where(there.unsqueeze(2), value + rise, torch.zeros_like(value))
