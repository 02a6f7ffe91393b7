"""Functions whose tensors can be trained, also if the caller has switched gradients off for good."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def outside_inference_mode(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The same function, for which ``torch.inference_mode`` of the caller does not hold."""

    @wraps(function)
    def run(*args: Parameters.args, **options: Parameters.kwargs) -> Result:
        with torch.inference_mode(False):
            return function(*args, **options)

    return run
