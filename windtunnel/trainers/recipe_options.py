"""The options of a recipe as keyword arguments, for type checkers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from torch import Tensor


class RecipeOptions(TypedDict, total=False):
    """The fields of ``windtunnel.Recipe``, each optional; type checkers read them from here."""

    residual: bool
    joint: bool
    epochs: int | None
    max_steps: int | None
    val_check_interval: int | None
    learning_rate: float
    table_rate: float
    tree_rate: float
    leaf_rate: float
    residual_rank: int
    batch_size: int | None
    weight_decay: float
    dropout: float
    patience: int | None
    seed: int
    optimizer: str
    schedule: str
    ema: float | None
    loss: str | Callable[[Tensor, Tensor, Tensor | None], Tensor] | None
    metric: str | Callable[..., float] | None
    class_weight: str | None
    select: str
    validation_fraction: float
    loader_memory: float | None
    clip: float | None
    compile: str | None
