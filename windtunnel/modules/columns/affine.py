"""Elementwise affine maps, which all the scalers share."""

from collections.abc import Sequence
from typing import ClassVar, Optional

import torch
from torch import Tensor

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module, Rounding, derived, learned
from windtunnel.modules.outputs.finite import Finite


def affine(x: Tensor, scale: Tensor, shift: Tensor, center: Tensor, unit: Tensor) -> Tensor:
    """(x - center) / unit * scale + shift; NaN and infinities come through and leave the gradients alone."""
    if not torch.is_grad_enabled():
        y = x - center
        # In the same memory: three more pieces of fresh memory take longer than the arithmetic.
        y /= unit
        y *= scale
        y += shift
        return y
    finite = torch.isfinite(x)
    # The gradient of the scale is a sum over rows, to which 0 * NaN would add NaN.
    y = (torch.where(finite, x, center) - center) / unit * scale + shift
    return torch.where(finite, y, x / unit * scale.detach())


class Affine(Module):
    """Shift and stretch each column by itself.

    y = (x - center) / unit * scale + shift

    The subtraction comes first: a column like 1e6 +- 1 keeps all its digits, which x * scale + shift would lose. What
    is learned has the size of the result, whatever the unit of the column: a step of 0.001 is small for all of them.
    """

    PER_COLUMN: ClassVar[tuple[str, ...]] = ("scale", "shift", "center", "unit")
    scale: Tensor = learned()  # [width]
    shift: Tensor = learned()  # [width]
    # Of the fitted data, in the unit of the column:
    center: Tensor  # [width]
    unit: Tensor  # [width]
    in_float32: Optional[dict[str, Tensor]] = derived()  # noqa: UP045  TorchScript
    """Other coefficients of the same map, which float32 loses less of; matters only until the module is cast."""

    def __post_init__(self) -> None:
        self.in_float32 = None

    def cast(self, dtype: torch.dtype) -> None:
        """Round the coefficients of (x - center) / unit * scale + shift to ``dtype``.

        What float32 cannot hold of the center (up to 0.03 at 1e6) goes into the shift. ``in_float32`` has other
        coefficients if the center is a value of the data (a median, a minimum). Rows with that value are rounded as the
        center is, and have to give ``shift`` exactly, as LightGBM puts thresholds next to zero.

        Raises
        ------
        UnsupportedEstimator
            A coefficient is beyond the range of ``dtype``.
        """
        with torch.no_grad():
            if dtype == torch.float32 and self.in_float32 is not None:
                for name, value in self.in_float32.items():
                    getattr(self, name).copy_(value)
            else:
                rest = (self.center - self.center.to(dtype).double()) / self.unit
                self.shift.sub_(rest * self.scale)
            self.to(dtype)
            tensors = torch.stack([self.scale, self.shift, self.center, self.unit])
            beyond = torch.isinf(tensors).any(dim=0) | (self.unit.abs() < torch.finfo(dtype).tiny)
        if beyond.any():
            raise UnsupportedEstimator(
                f"the center or scale of columns {beyond.nonzero()[:, 0].tolist()} is beyond the range of {dtype}; "
                "bring these columns to another unit and fit again, or take windtunnel.compile, which uses float64"
            )

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, width]; NaN stays NaN."""
        return affine(x, self.scale, self.shift, self.center, self.unit)

    def has_bits_of_source(self) -> bool:
        """It computes in the order of the source."""
        return True

    def rounding(self, column: int, inputs: Sequence[Rounding | None]) -> Rounding | None:
        """That of the column before, stretched."""
        of_input = inputs[column]
        scale, shift, center, unit = (
            float(tensor.detach()[column]) for tensor in (self.scale, self.shift, self.center, self.unit)
        )
        if of_input is None or scale == 0:
            return None
        return lambda y: of_input((y - shift) / scale * unit + center) * abs(scale / unit)

    def finite_inputs(self, width: int) -> list[Finite | None]:
        """Each column with itself; of one that is multiplied by 0 nothing is said."""
        return [None if scale == 0 else Finite((column,)) for column, scale in enumerate(self.scale.tolist())]


class ClippedAffine(Affine):
    """An ``Affine`` clipped to two bounds.

    y = min(max((x - center) / unit * scale + shift, low), high)
    """

    low: float  # in units of the result
    high: float

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, width]; NaN stays NaN."""
        return affine(x, self.scale, self.shift, self.center, self.unit).clamp(self.low, self.high)

    def finite_inputs(self, width: int) -> list[Finite | None]:
        """Each column with itself; infinities are clipped."""
        return [None if scale == 0 else Finite((column,), ("nan",)) for column, scale in enumerate(self.scale.tolist())]
