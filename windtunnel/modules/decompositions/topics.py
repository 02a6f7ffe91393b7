"""Topics of documents, by variational updates."""

import torch
from torch import Tensor

from windtunnel.modules.base import Module, bounded, learned
from windtunnel.modules.loops import while_loop


def digamma(x: Tensor, euler: float = 0.5772156649015329) -> Tensor:
    """The derivative of log Gamma(x), x > 0, by recurrence up to 6 and its asymptotic series to 1 / x^6.

    It is off by up to 2e-9 where x is near 6, as in the source: ``torch.digamma``, which is not, would be too far off.
    """
    small = x <= 1e-6
    moved = torch.where(small, torch.ones_like(x), x)
    total = torch.zeros_like(x)
    for _ in range(6):
        below = moved < 6
        total = total - torch.where(below, 1.0 / moved, torch.zeros_like(moved))
        moved = torch.where(below, moved + 1.0, moved)
    inverse = 1.0 / moved
    square = inverse * inverse
    series = square * (1.0 / 12.0 - square * (1.0 / 120.0 - square * (1.0 / 252.0)))
    tiny = -euler - 1.0 / torch.where(small, x, torch.ones_like(x))
    return torch.where(small, tiny, total + torch.log(moved) - 0.5 * inverse - series)


class TopicProportions(Module):
    """The share of each topic in a document of word counts, by the E-step of variational Bayes.

    theta_k <- prior + t_k sum_w x_w B_kw / (sum_j t_j B_jw + eps),    t_k = exp(psi(theta_k) - psi(sum_j theta_j))

    from theta = 1, until a step changes the theta of a row by less than ``tolerance`` on average; then
    y = theta / sum theta.
    """

    words: Tensor = learned()  # [topics, words], exp(E[log beta]), above 0
    prior: float  # of a topic in a document
    steps: int = bounded(0, 10_000)  # at most
    tolerance: float  # the mean absolute change of theta
    epsilon: float  # keeps the denominator above 0

    def rejected_rows(self, x: Tensor) -> Tensor | None:
        """Rows with negative, missing or infinite values."""
        return (~torch.isfinite(x) | (x < 0)).any(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, words] -> [B, topics]; NaN for rows with negative values."""
        # In float64 whatever the type, as a step more or less moves the output by the tolerance.
        counts, words = x.double(), self.words.double()
        theta = torch.ones([x.shape[0], words.shape[0]], dtype=counts.dtype, device=x.device)
        going = torch.ones([x.shape[0], 1], dtype=torch.bool, device=x.device)
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            if torch.compiler.is_exporting():
                return self.shares(x, while_loop(self.step, (going, theta), (counts, words), self.steps)[1])
        for _ in range(self.steps):
            going, theta = self.step(going, theta, counts, words)
            if not bool(going.any()):
                break
        return self.shares(x, theta)

    def step(self, going: Tensor, theta: Tensor, counts: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        """A mask of the rows that go on, ``[B, 1]``, and theta ``[B, topics]`` after a step of those that did."""
        weight = torch.exp(digamma(theta) - digamma(theta.sum(dim=1, keepdim=True)))
        updated = weight * ((counts / (weight @ words + self.epsilon)) @ words.t()) + self.prior
        change = (updated - theta).detach().abs().mean(dim=1, keepdim=True)
        return going & (change >= self.tolerance), torch.where(going, updated, theta)

    def shares(self, x: Tensor, theta: Tensor) -> Tensor:
        """The output for rows with this theta."""
        shares = (theta / theta.sum(dim=1, keepdim=True)).to(x.dtype)
        return torch.where((x < 0).any(dim=1, keepdim=True), torch.full_like(shares, float("nan")), shares)
