"""The log-density of a normal distribution."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

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

    def __init__(self, center: Tensor, precision: Tensor, offset: Tensor) -> None:
        super().__init__()
        self.register_buffer("center", center.detach().clone())
        self.register_buffer("precision", precision.detach().clone())
        self.register_buffer("offset", offset.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B]."""
        apart = x - self.center
        return self.offset - 0.5 * (apart * (apart @ self.precision)).sum(dim=1)
