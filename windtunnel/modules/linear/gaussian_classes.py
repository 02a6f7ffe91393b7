"""One Gaussian per class: the log density of a row under each of them, plus what does not depend on the row."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

import torch
from torch import Tensor, nn

from windtunnel.modules.base import Module


class DiagonalGaussians(Module):
    """Log densities of Gaussians whose columns are independent, as naive Bayes takes them.

    y_k = offset_k - sum_j ((x_j - mean_kj) scale_kj)^2 / 2

    Shape
    -----
    ``[B, width]`` -> ``[B, K]``, in nats.

    Parameters
    ----------
    mean : Tensor
        ``[K, width]``, in the unit of the columns; learned.
    scale : Tensor
        ``[K, width]``, one over the standard deviations; learned.
    offset : Tensor
        ``[K]``, log prior less half the log determinant of 2 pi times the covariance; learned.

    Examples
    --------
    >>> one = torch.ones(1, 2)
    >>> DiagonalGaussians(one, one, torch.zeros(1))(torch.tensor([[1.0, 3.0]])).tolist()
    [[-2.0]]
    """

    def __init__(self, mean: Tensor, scale: Tensor, offset: Tensor) -> None:
        super().__init__()
        self.mean = nn.Parameter(mean.detach().clone())
        self.scale = nn.Parameter(scale.detach().clone())
        self.offset = nn.Parameter(offset.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        # Class by class: all at once would need B x K x width numbers.
        squares: list[Tensor] = []
        for k in range(self.mean.shape[0]):
            squares.append(((x - self.mean[k]) * self.scale[k]).square().sum(dim=1))
        return self.offset - 0.5 * torch.stack(squares, dim=1)


class WhitenedGaussians(Module):
    """Log densities of Gaussians with a covariance of their own each, as quadratic discriminant analysis takes them.

    y_k = offset_k - |(x - mean_k) W_k|^2 / 2

    Shape
    -----
    ``[B, width]`` -> ``[B, K]``, in nats.

    Parameters
    ----------
    mean : Tensor
        ``[K, width]``, in the unit of the columns; learned.
    whiten : Tensor
        ``[K, width, width]``, W_k W_k^T is the inverse of the covariance; learned.
    offset : Tensor
        ``[K]``, log prior less half the log determinant of the covariance; learned.

    Examples
    --------
    >>> WhitenedGaussians(torch.ones(1, 2), torch.eye(2)[None], torch.zeros(1))(torch.tensor([[1.0, 3.0]])).tolist()
    [[-2.0]]
    """

    def __init__(self, mean: Tensor, whiten: Tensor, offset: Tensor) -> None:
        super().__init__()
        self.mean = nn.Parameter(mean.detach().clone())
        self.whiten = nn.Parameter(whiten.detach().clone())
        self.offset = nn.Parameter(offset.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        squares: list[Tensor] = []
        for k in range(self.mean.shape[0]):
            squares.append(((x - self.mean[k]) @ self.whiten[k]).square().sum(dim=1))
        return self.offset - 0.5 * torch.stack(squares, dim=1)
