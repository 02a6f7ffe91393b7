"""A small neural network over the features of a boosted residual, trained from scratch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from windtunnel.modules.linear.table_perceptron import TablePerceptron
from windtunnel.objectives.losses import Loss
from windtunnel.progress import Phase
from windtunnel.trainers.residual.boosted.boosting import BoostingRows
from windtunnel.trainers.residual.boosted.code_functions import CodeFunctions
from windtunnel.trainers.residual.boosted.feature_layout import FeatureLayout

WIDTH, DROPOUT = 64, 0.2
RATE, WEIGHT_DECAY = 2e-3, 0.01
MIN_BATCH, MAX_BATCH, BATCHES = 64, 512, 100
"""The fewest and the most rows of a batch. Between them, an epoch has so many batches."""
EPOCHS, PATIENCE = 20, 3
ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class Network:
    """A network, and which features it reads: the numeric ones, the first, and codes that have a table."""

    module: TablePerceptron
    codes: list[int]  # positions among the features

    @property
    def numeric(self) -> int:
        """The number of numeric features."""
        return self.module.hidden_weight.shape[1]

    def scores(self, features: Tensor) -> Tensor:
        """``[N, K]`` from features ``[N, F]``."""
        scores: Tensor = self.module(torch.cat([features[:, : self.numeric], features[:, self.codes]], dim=1))
        return scores

    def times(self, factor: float) -> Network:
        """A network whose output is a multiple."""
        tensors = self.module.state_dict()
        output = {name: tensors[name] * factor for name in ("weight", "bias")}
        return replace(self, module=TablePerceptron(**tensors | output).eval())


@dataclass(frozen=True)
class NetworkTraining:
    """A trained network, and the scores of the validation rows after each epoch."""

    best: Network  # of the epoch with the lowest loss on all validation rows
    scores: list[Tensor]  # ``[N, K]``
    losses: NDArray[np.float64]  # ``[epochs, 3]``: on all validation rows, and on either half

    def scores_of(self, part: int) -> Tensor:
        """The scores of the epoch with the lowest loss on all validation rows (0) or on a half (1, 2)."""
        return self.scores[int(self.losses[:, part].argmin())]


@dataclass(frozen=True)
class NetworkInputs:
    """Makes the inputs of the first layer: numeric features, standardised, and functions of codes.

    The functions make the network a table for each column, whose rows are weighted sums of them.
    """

    layout: FeatureLayout
    center: Tensor  # ``[numeric]``
    scale: Tensor  # ``[numeric]``
    functions: CodeFunctions

    @classmethod
    def of(cls, features: Tensor, layout: FeatureLayout) -> NetworkInputs:
        """The inputs for features ``[N, F]`` of training rows."""
        numeric = features[:, : layout.numeric]
        center, scale = numeric.mean(dim=0), numeric.std(dim=0, correction=0)
        scale[scale == 0] = 1
        return cls(layout, center, scale, CodeFunctions.of(features, layout))

    def __call__(self, features: Tensor) -> Tensor:
        """``[N, inputs]``."""
        numeric = (features[:, : self.layout.numeric] - self.center) / self.scale
        return torch.cat([numeric, self.functions(features)], dim=1)

    @property
    def width(self) -> int:
        """The number of inputs."""
        return len(self.center) + self.functions.width

    def network(self, net: nn.Sequential, start: Tensor, unit: Tensor) -> Network:
        """The modules that compute ``start`` ``[K]`` plus ``unit`` ``[K]`` times the output of trained layers."""
        first, last = (layer for layer in net if isinstance(layer, nn.Linear))
        (weight, bias), (weight_out, bias_out) = (
            (layer.weight.detach().double(), layer.bias.detach().double()) for layer in (first, last)
        )
        of_numeric, of_functions = torch.split(weight, [len(self.center), self.functions.width], dim=1)
        of_numeric = of_numeric / self.scale.double()
        rows, starts = self.functions.tables(of_functions)
        module = TablePerceptron(
            rows=rows,
            start=starts,
            hidden_weight=of_numeric,
            hidden_bias=bias - of_numeric @ self.center.double(),
            weight=weight_out * unit.unsqueeze(1),
            bias=bias_out * unit + start,
        )
        return Network(module.eval(), self.functions.positions)


def train_network(
    features: NDArray[np.float32],
    valid_features: NDArray[np.float32],
    layout: FeatureLayout,
    start: Tensor,
    train: BoostingRows,
    valid: BoostingRows,
    halves: Sequence[Tensor],
    loss: Loss,
    unit: Tensor,
    seed: int,
) -> NetworkTraining:
    """Train a network, until ``PATIENCE`` epochs have not lowered the loss of the validation rows.

    Its scores are ``start`` ``[K]`` plus ``unit`` ``[K]`` times the output of the layers. The learning rate falls
    linearly to 0.
    """
    x, x_valid = torch.from_numpy(features), torch.from_numpy(valid_features)
    inputs = NetworkInputs.of(x, layout)
    parts = [torch.cat(list(halves)).sort().values, *halves]
    rows = len(x)
    batches = -(-rows // min(max(rows // BATCHES, MIN_BATCH), MAX_BATCH))

    with torch.random.fork_rng(devices=[]), Phase("training a network on the same features", EPOCHS) as phase:
        torch.manual_seed(seed)
        net = _layers(inputs.width, len(start))
        optimizer = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=WEIGHT_DECAY)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, EPOCHS * batches)
        scores, losses, best = list[Tensor](), list[list[float]](), net.state_dict()
        while len(losses) < EPOCHS and len(losses) - _lowest(losses) <= PATIENCE:
            net.train()
            for batch in torch.randperm(rows).tensor_split(batches):
                optimizer.zero_grad()
                torch.autograd.backward(loss(start + unit * net(inputs(x[batch])), *train.take(batch)))
                optimizer.step()
                schedule.step()
            net.eval()
            with torch.inference_mode():
                outputs = torch.cat([net(inputs(part)) for part in torch.split(x_valid, ROWS_AT_ONCE)])
                scores.append(start + unit * outputs)
                losses.append([_finite(float(loss(scores[-1][part], *valid.take(part)))) for part in parts])
            if _lowest(losses) == len(losses) - 1:
                best = {name: value.clone() for name, value in net.state_dict().items()}
            phase.advance()
        net.load_state_dict(best)
    return NetworkTraining(inputs.network(net, start, unit), [each.clone() for each in scores], np.array(losses))


def _layers(width: int, outputs: int) -> nn.Sequential:
    """One hidden layer: a second one costs as much time for each row to score, and gains nothing."""
    return nn.Sequential(nn.Linear(width, WIDTH), nn.ReLU(), nn.Dropout(DROPOUT), nn.Linear(WIDTH, outputs))


def _lowest(losses: list[list[float]]) -> int:
    """The epoch with the lowest loss on all validation rows; 0 before the first."""
    return min(range(len(losses)), key=lambda epoch: losses[epoch][0], default=0)


def _finite(loss: float) -> float:
    return loss if math.isfinite(loss) else math.inf
