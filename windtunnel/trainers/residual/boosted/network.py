"""A small neural network over the features of a boosted residual, trained from scratch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from windtunnel.modules.linear.multilayer import MultilayerPerceptron
from windtunnel.trainers.residual.boosted.fit_targets import FitTargets
from windtunnel.trainers.significance.validation_halves import RowSubset

WIDTH, DROPOUT = 64, 0.2
RATE, WEIGHT_DECAY, BATCH = 5e-3, 0.01, 512
EPOCHS, PATIENCE = 20, 3


def scaled(layers: MultilayerPerceptron, factor: float) -> MultilayerPerceptron:
    """Layers whose output is a multiple."""
    outputs, width = layers.sizes[-1], layers.sizes[-2]
    weight, bias = layers.weight.detach().clone(), layers.bias.detach().clone()
    weight[len(weight) - outputs * width :] *= factor
    bias[len(bias) - outputs :] *= factor
    return MultilayerPerceptron(weight, bias, layers.sizes, layers.activation, reference=layers.reference).eval()


@dataclass(frozen=True)
class NetworkTraining:
    """A trained network, and the scores of the validation rows after each epoch."""

    layers: MultilayerPerceptron  # scores from features, of the epoch with the lowest loss on all validation rows
    scores: list[Tensor]  # ``[N, K]``
    losses: NDArray[np.float64]  # ``[epochs, 3]``, on each ``RowSubset``

    def scores_of(self, subset: RowSubset) -> Tensor:
        """The scores of the epoch with the lowest loss on a subset of the validation rows."""
        return self.scores[int(self.losses[:, subset].argmin())]


def train_network(
    targets: FitTargets, features: NDArray[np.float32], valid_features: NDArray[np.float32]
) -> NetworkTraining:
    """Train a network, until ``PATIENCE`` epochs have not lowered the loss of the validation rows.

    Its scores are the constant plus the unit of the scores times the output of the layers. The learning rate falls
    linearly to 0. The features of training rows ``[N, F]`` are standardised.
    """
    center, scale = (torch.from_numpy(each) for each in (features.mean(axis=0), features.std(axis=0)))
    scale[scale == 0] = 1
    x, x_valid = ((torch.from_numpy(each) - center) / scale for each in (features, valid_features))
    base_score, unit, rows = targets.base_score, targets.unit, len(x)
    batches = -(-rows // BATCH)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(targets.seed)
        net = _layers(x.shape[1], len(base_score))
        optimizer = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=WEIGHT_DECAY)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, EPOCHS * batches)
        scores, losses, best = list[Tensor](), list[list[float]](), net.state_dict()
        while len(losses) < EPOCHS and len(losses) - _lowest(losses) <= PATIENCE:
            net.train()
            for batch in torch.randperm(rows).tensor_split(batches):
                optimizer.zero_grad()
                torch.autograd.backward(targets.loss(base_score + unit * net(x[batch]), *targets.train.take(batch)))
                optimizer.step()
                schedule.step()
            net.eval()
            with torch.inference_mode():
                scores.append(base_score + unit * net(x_valid))
                losses.append([*map(_finite, targets.losses_on_subsets(scores[-1]))])
            if _lowest(losses) == len(losses) - 1:
                best = {name: value.clone() for name, value in net.state_dict().items()}
        net.load_state_dict(best)
    layers = _of_features(net, center, scale, base_score, unit)
    return NetworkTraining(layers, [each.clone() for each in scores], np.array(losses))


def _layers(width: int, outputs: int) -> nn.Sequential:
    """One hidden layer: a second one costs as much time for each row to score, and gains nothing."""
    return nn.Sequential(nn.Linear(width, WIDTH), nn.ReLU(), nn.Dropout(DROPOUT), nn.Linear(WIDTH, outputs))


def _of_features(
    net: nn.Sequential, center: Tensor, scale: Tensor, base_score: Tensor, unit: Tensor
) -> MultilayerPerceptron:
    """Layers that standardise features in the first one, and give ``base_score`` plus ``unit`` times their output."""
    linear = [layer for layer in net if isinstance(layer, nn.Linear)]
    weight, bias = ([getattr(layer, name).detach().double() for layer in linear] for name in ("weight", "bias"))
    weight[0] = weight[0] / scale.double()
    bias[0] = bias[0] - weight[0] @ center.double()
    weight[-1], bias[-1] = weight[-1] * unit.unsqueeze(1), bias[-1] * unit + base_score
    sizes = [linear[0].in_features, *(layer.out_features for layer in linear)]
    weights = torch.cat([each.flatten() for each in weight])
    return MultilayerPerceptron(weights, torch.cat(bias), sizes, "relu", reference=center.double()).eval()


def _lowest(losses: list[list[float]]) -> int:
    """The epoch with the lowest loss on all validation rows; 0 before the first."""
    return min(range(len(losses)), key=lambda epoch: losses[epoch][0], default=0)


def _finite(loss: float) -> float:
    return loss if math.isfinite(loss) else math.inf
