"""Several classes from estimators of two: one against the rest, one against one, error-correcting codes."""

import torch
from torch import Tensor

from windtunnel.modules.base import Module, bounded, learned
from windtunnel.modules.ensembles.ensemble import columns_or_zero


def select_or_constant(x: Tensor, place: Tensor, constant: Tensor) -> Tensor:
    """Columns ``place`` of ``[B, width]``, and the constant where that is -1, ``[B, E]``."""
    return columns_or_zero(x, place) + torch.where(place < 0, constant, torch.zeros_like(constant))


class MemberScores(Module):
    """The score of each of E estimators for its class; some are constant."""

    place: Tensor  # int64 [E], the column of each; -1 for a constant
    constant: Tensor  # [E], the score of estimators without a column; 0 for the others
    pair: bool = False  # whether a single probability p is given as [1 - p, p]

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, E], or [B, 2] where ``pair``."""
        scores = select_or_constant(x, self.place, self.constant)
        return torch.cat([1 - scores, scores], dim=1) if self.pair else scores


class MemberProbabilities(Module):
    """Probabilities of E estimators, divided by their sum; rows of zeros stay.

    y_e = p_e / sum_j p_j; of a single estimator [1 - p, p]
    """

    place: Tensor  # and constant: see ``MemberScores``
    constant: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, E], or [B, 2] of a single one."""
        shares = select_or_constant(x, self.place, self.constant)
        if shares.shape[1] == 1:
            shares = torch.cat([1 - shares, shares], dim=1)
        total = shares.sum(dim=1, keepdim=True)
        return shares / torch.where(total == 0, torch.ones_like(total), total)


class OneVsOneVotes(Module):
    """Votes of the estimators for each pair of K classes; their confidences decide between equal ones.

    y_k = votes_k + c_k / (3 (|c_k| + 1)), with c_k the sum of the confidences for class k less those against it
    """

    classes: int = bounded(2, 1000)  # K, at least 2

    def forward(self, x: Tensor) -> Tensor:
        """[B, 2 P] -> [B, K], or [B, 1], the second class, where K is 2.

        P votes (1 for the second class of the pair, 0 for the first), then P confidences for it, in the order (0, 1),
        (0, 2), ..., (1, 2), ...
        """
        votes: list[Tensor] = []
        sums: list[Tensor] = []
        for _ in range(self.classes):
            votes.append(torch.zeros_like(x[:, 0]))
            sums.append(torch.zeros_like(x[:, 0]))
        pairs = x.shape[1] // 2
        pair = 0
        for first in range(self.classes):
            for second in range(first + 1, self.classes):
                vote, confidence = x[:, pair], x[:, pairs + pair]
                votes[first] = votes[first] + (1 - vote)
                votes[second] = votes[second] + vote
                sums[first] = sums[first] - confidence
                sums[second] = sums[second] + confidence
                pair += 1
        total = torch.stack(sums, dim=1)
        scores = torch.stack(votes, dim=1) + total / (3 * (total.abs() + 1))
        return scores[:, 1:] if self.classes == 2 else scores


class CodeScores(Module):
    """How near the outputs of E estimators are to the code of each class.

    y_k = 2 <x, c_k> - |c_k|^2, which is greatest where |x - c_k| is least
    """

    code: Tensor = learned()  # [K, E], a row per class
    place: Tensor  # and constant: see ``MemberScores``
    constant: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        outputs = select_or_constant(x, self.place, self.constant)
        return 2 * (outputs @ self.code.t()) - (self.code * self.code).sum(dim=1)
