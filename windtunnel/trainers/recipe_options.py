"""The options of a recipe as keyword arguments: for type checkers, ``inspect.signature`` and completion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from inspect import Parameter, signature
from typing import Any, TypedDict, TypeVar

from torch import Tensor

from windtunnel.trainers.recipe import Recipe

Method = TypeVar("Method", bound=Callable[..., Any])


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
    metric: str | None
    class_weight: str | None
    select: str
    validation_fraction: float
    loader_memory: float | None
    clip: float | None
    compile: str | None


def takes_recipe_options(method: Method) -> Method:
    """Replace ``**options`` in the signature of a method by the fields of ``Recipe``, with their defaults."""
    shown = signature(method)
    *named, _ = shown.parameters.values()
    options = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for field in fields(Recipe)
    ]
    method.__signature__ = shown.replace(parameters=[*named, *options])  # type: ignore[attr-defined]
    return method
