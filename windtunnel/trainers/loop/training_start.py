"""Facts about initial weights and validation rows, by which ``resume`` rejects checkpoints of another pipeline."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from windtunnel.trainers.data.encoded_loader import EncodedLoader
from windtunnel.trainers.loop.net_to_train import NetToTrain

MAX_NUMBERS = 100_000
TOLERANCE = 1e-5
"""The part of a norm by which processors may differ."""


def training_start(trained: NetToTrain, valid: EncodedLoader) -> dict[str, Any]:
    """Names of what is trained, and sums of the initial weights and of validation rows in memory, as JSON values."""
    # Of a translation those before any training: an interrupted fit may be resumed with what it has trained so far.
    weights = trained.module.state_dict() if trained.initial_weights is None else trained.initial_weights
    sums = {name: _sums(weight) for name, weight in weights.items()}
    if valid.rows is not None:
        sums |= {f"validation {name}": _sums(block) for name, block in valid.rows._asdict().items()}
    parameters = trained.module.named_parameters()
    names = sorted(name for name, parameter in parameters if parameter.requires_grad)
    return {"trained": names, "sums": sums}


def _sums(numbers: Tensor) -> list[float]:
    """A sum whose terms have weights by their places, so that it depends on their order; and the norm."""
    numbers = numbers.detach().flatten()
    numbers = numbers[:: max(1, len(numbers) // MAX_NUMBERS)].cpu().double().nan_to_num(0.0, 0.0, 0.0)
    return [float(numbers @ torch.linspace(1, 2, len(numbers), dtype=torch.float64)), float(numbers.norm())]


def difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    """How two starts differ; empty where they are the same."""
    if before["trained"] != now["trained"]:
        others = sorted({*before["trained"]} ^ {*now["trained"]})
        return f"{', '.join(others[:5])} were trained by one of both alone"
    wrong = [name for name, sums in now["sums"].items() if not _near(before["sums"].get(name), sums)]
    return f"{', '.join(wrong[:5])} began with other values" if wrong else ""


def _near(before: list[float] | None, now: list[float]) -> bool:
    tolerance = TOLERANCE * now[1] + 1e-12
    return before is not None and all(abs(a - b) <= tolerance for a, b in zip(before, now, strict=True))
