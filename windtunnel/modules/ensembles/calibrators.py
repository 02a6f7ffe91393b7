"""Calibrated probabilities of classifiers by sigmoids, isotonic steps or temperatures, averaged over classifiers."""

import torch
from torch import Tensor, nn

from windtunnel.modules.base import Module, learned
from windtunnel.modules.ensembles.ensemble import columns_or_zero


def mean_probabilities(calibrated: Tensor, place: Tensor) -> Tensor:
    """Mean over E classifiers of their calibrated columns as probabilities, ``[B, columns]`` -> ``[B, K]``.

    ``place`` is int64 ``[E, K]``, the column of each class or -1, and rows are normalised to sum 1 (uniform where all
    are 0); or ``[E, 1]``, the column of the second of two classes.
    """
    members, classes = place.shape[0], place.shape[1]
    each = columns_or_zero(calibrated, place).view(calibrated.shape[0], members, classes)
    if classes == 1:
        each = torch.cat([1 - each, each], dim=2)
    else:
        total = each.sum(dim=2, keepdim=True)
        nonzero = total != 0
        shares = each / torch.where(nonzero, total, torch.ones_like(total))
        each = torch.where(nonzero, shares, torch.full_like(each, 1 / classes))
    each = torch.where((each > 1) & (each <= 1 + 1e-5), torch.ones_like(each), each)
    return each.cumsum(1)[:, -1] / members


class SigmoidCalibration(Module):
    """Platt's sigmoids, then the mean over classifiers.

    p_c = 1 / (1 + exp(slope_c s_c + offset_c)); then see ``mean_probabilities``.
    """

    slope: Tensor = learned()  # [columns]
    offset: Tensor = learned()  # [columns]
    place: Tensor  # int64 [E, K], or [E, 1] for two classes

    def forward(self, scores: Tensor) -> Tensor:
        """[B, columns] -> [B, K]."""
        return mean_probabilities(torch.sigmoid(-(scores * self.slope + self.offset)), self.place)


class IsotonicCalibration(Module):
    """Isotonic regressions, linear between their points and flat outside, then the mean over classifiers.

    Computed in float64 whatever the type of the program: neighbouring points may be nearer than float32 tells.
    """

    x: Tensor  # [columns, points], ascending, infinity after the last point; at least two
    y: Tensor = learned()  # [columns, points], the last one repeated
    last: Tensor  # int64 [columns], the position of the last point
    place: Tensor  # int64 [E, K], or [E, 1] for two classes
    single: bool  # whether scores and results are rounded to float32, as where the source was fitted on float32

    def cast(self, dtype: torch.dtype) -> None:
        """Learn in ``dtype``; the points stay where they are."""
        self.y = nn.Parameter(self.y.detach().to(dtype))

    def forward(self, scores: Tensor) -> Tensor:
        """[B, columns] -> [B, K]."""
        numbers = scores.to(torch.float32).double() if self.single else scores.double()
        x, y, last = self.x, self.y.double(), self.last.unsqueeze(1)
        # [columns, B]
        held = torch.minimum(torch.maximum(numbers.t(), x[:, :1]), x.gather(1, last)).contiguous()
        at = torch.searchsorted(x, held.detach(), right=True) - 1
        at = torch.minimum(at, last - 1).clamp_min(0)
        low, high = y.gather(1, at), y.gather(1, at + 1)
        start = x.gather(1, at)
        fitted = (low + (held - start) / (x.gather(1, at + 1) - start) * (high - low)).t()
        if self.single:
            fitted = fitted.to(torch.float32).double()
        return mean_probabilities(fitted, self.place).to(scores.dtype)


class TemperatureCalibration(Module):
    """A softmax at a fitted temperature, then the mean over classifiers.

    p = softmax(beta z) with z = log(p + 1e-12) of probabilities, z = s of decisions, and z = [-s, s] of a single one.

    Computed in float64 whatever the type of the program: small probabilities have large logarithms.
    """

    beta: Tensor = learned()  # [E], inverse temperatures
    probabilities: bool  # whether the columns are probabilities and not decisions

    def forward(self, scores: Tensor) -> Tensor:
        """[B, E K], or [B, E] for two classes, -> [B, K]."""
        members = self.beta.shape[0]
        each = scores.double().reshape(scores.shape[0], members, scores.shape[1] // members)
        if each.shape[2] == 1:
            other = 1 - each if self.probabilities else -each
            each = torch.cat([other, each], dim=2)
        if self.probabilities:
            # Trees that are soft may give a little less than 0.
            each = torch.log(each.clamp_min(0) + 1e-12)
        shares = torch.softmax(each * self.beta.double().unsqueeze(1), dim=2)
        return (shares.cumsum(1)[:, -1] / members).to(scores.dtype)
