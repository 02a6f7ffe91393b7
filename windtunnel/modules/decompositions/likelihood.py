"""The log-density of a normal distribution."""

from torch import Tensor

from windtunnel.modules.base import Module


class NormalLikelihood(Module):
    """How likely a row is under a normal distribution, in nats.

    y = -1/2 (x - center)^T P (x - center) + offset

    Shape
    -----
    ``[B, width]`` -> ``[B]``.

    Parameters
    ----------
    center : Tensor
        ``[width]``, in the unit of the column.
    precision : Tensor
        ``[width, width]``, the inverse P of the covariance.
    offset : Tensor
        A number, 1/2 (log det P - width log 2 pi).
    """

    center: Tensor
    precision: Tensor
    offset: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B]."""
        apart = x - self.center
        return self.offset - 0.5 * (apart * (apart @ self.precision)).sum(dim=1)
