"""Support vector machines: kernels of support vectors, and the votes between pairs of classes."""

from typing import ClassVar

import torch
from torch import Tensor

from windtunnel.modules.base import Module, bounded, derived
from windtunnel.modules.kernels.pairwise import KernelMap
from windtunnel.modules.loops import while_loop
from windtunnel.modules.slices import row_blocks


class SupportVectors(KernelMap):
    """A ``KernelMap`` whose rows are taken in blocks, as its points may be many."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        return torch.cat([self.block(part) for part in row_blocks(x.double(), self.points.shape[0])]).to(x.dtype)


def pairs(classes: int) -> tuple[list[int], list[int]]:
    """The first and the second class of each pair, in the order of one-against-one scores."""
    first = [i for i in range(classes) for _ in range(i + 1, classes)]
    second = [j for i in range(classes) for j in range(i + 1, classes)]
    return first, second


class PairSums(Module):
    """Base of the modules that count the votes of pairs of classes."""

    classes: int = bounded(2, 1000)  # the number of classes C; there are C (C - 1) / 2 pairs
    first: Tensor = derived()
    second: Tensor = derived()

    def __post_init__(self) -> None:
        first, second = pairs(self.classes)
        rows = torch.eye(self.classes, dtype=torch.float64)
        self.register_buffer("first", rows[first], persistent=False)
        self.register_buffer("second", rows[second], persistent=False)


class PairWinnerLabel(PairSums):
    """The position of the class with the most votes: a pair's first where its score is above 0, else its second."""

    def forward(self, scores: Tensor) -> Tensor:
        """[B, pairs] -> int64 [B]."""
        votes = torch.where((scores > 0).unsqueeze(2), self.first, self.second).sum(dim=1)
        return votes.argmax(dim=1)


class PairVotes(PairSums):
    """Votes, and what the scores of the pairs add up to as a fraction that decides between equal ones.

    y_c = votes_c + s_c / (3 (|s_c| + 1)), s_c the sum of the scores for c less those against it; a score of 0 is a vote
    for the first class of its pair.
    """

    def forward(self, scores: Tensor) -> Tensor:
        """[B, pairs] -> [B, classes]."""
        return self.votes(scores)

    def votes(self, scores: Tensor) -> Tensor:
        """The output of ``forward``."""
        # Loaded from a file they are float64, whatever the scores are.
        first, second = self.first.to(scores.dtype), self.second.to(scores.dtype)
        votes = torch.where((scores < 0).unsqueeze(2), second, first).sum(dim=1)
        total = scores @ (first - second)
        return votes + total / (3 * (total.abs() + 1))


class PairVotesLabel(PairVotes):
    """The position of the greatest of ``PairVotes``."""

    def forward(self, scores: Tensor) -> Tensor:
        """[B, pairs] -> int64 [B]."""
        return self.votes(scores).argmax(dim=1)


class PairCoupling(Module):
    """Probabilities of classes from those of pairs (Wu, Lin and Weng 2004, the second method), as libsvm iterates it.

    r_ij = 1 / (1 + exp(A_ij s_ij + B_ij)), kept 1e-7 away from 0 and 1. Coordinate steps from p = 1 / C minimise the
    sum of (r_ji p_i - r_ij p_j)^2, until the gradients of a row are within 0.005 / C of their mean.

    In float64 whatever the type of the scores, as the steps subtract numbers that are nearly equal.
    """

    FLOAT64: ClassVar[bool] = True
    # slope, intercept: [pairs], A and B
    slope: Tensor
    intercept: Tensor
    classes: int = bounded(2, 1000)
    sign: float = 1.0  # -1 where the raw score is that of the second class (two classes), else 1
    first: Tensor = derived()
    second: Tensor = derived()

    def __post_init__(self) -> None:
        first, second = pairs(self.classes)
        self.register_buffer("first", torch.tensor(first), persistent=False)
        self.register_buffer("second", torch.tensor(second), persistent=False)

    def forward(self, scores: Tensor) -> Tensor:
        """[B, pairs] -> float64 [B, classes]."""
        k = self.classes
        scores = scores.to(torch.float64)
        pair = torch.sigmoid(-(self.sign * scores * self.slope + self.intercept)).clamp(1e-7, 1 - 1e-7)
        wins = torch.zeros(scores.shape[0], k, k, dtype=scores.dtype, device=scores.device)
        wins[:, self.first, self.second] = pair
        wins[:, self.second, self.first] = 1 - pair
        lost = wins.transpose(1, 2)
        form = torch.diag_embed(lost.square().sum(dim=2)) - lost * wins  # [B, k, k]
        p = torch.full((scores.shape[0], k), 1.0 / k, dtype=scores.dtype, device=scores.device)
        going = torch.ones([scores.shape[0], 1], dtype=torch.bool, device=scores.device)
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            if torch.compiler.is_exporting():
                return while_loop(self.step, (going, p), (form,), max(100, k))[1]
        for _ in range(max(100, k)):
            going, p = self.step(going, p, form)
            if not bool(going.any()):
                break
        return p

    def step(self, going: Tensor, p: Tensor, form: Tensor) -> tuple[Tensor, Tensor]:
        """A mask of the rows that have not converged, ``[B, 1]``, and the probabilities after a round of those."""
        slopes = (form @ p.unsqueeze(2)).squeeze(2)
        value = (p * slopes).sum(dim=1, keepdim=True)
        going = (slopes - value).abs().amax(dim=1, keepdim=True) >= 0.005 / self.classes
        return going, torch.where(going, self.round(form, p, slopes, value), p)

    def round(self, form: Tensor, p: Tensor, slopes: Tensor, value: Tensor) -> Tensor:
        """One step along each class in turn, after each of which the probabilities add up to 1 again."""
        for t in range(self.classes):
            diagonal = form[:, t, t].unsqueeze(1)
            slope = slopes[:, t].unsqueeze(1)
            step = (value - slope) / diagonal
            value = (value + step * (step * diagonal + 2 * slope)) / (1 + step) / (1 + step)
            slopes = (slopes + step * form[:, t]) / (1 + step)
            p = torch.cat([p[:, :t], p[:, t : t + 1] + step, p[:, t + 1 :]], dim=1) / (1 + step)
        return p
