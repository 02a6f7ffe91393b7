"""The lowering function of each module class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from windtunnel.compiler.native.image import ImageWriter
from windtunnel.compiler.native.lowering.traced import NotNative, trace
from windtunnel.modules.base import Module

__all__ = ["NotNative", "lower", "lowers"]
M = TypeVar("M", bound=Module)
Lowering = Callable[[Any, ImageWriter, list[int]], list[int]]
_LOWERINGS: dict[type[Module], Lowering] = {}


def lowers(module_class: type[M]) -> Callable[[Callable[[M, ImageWriter, list[int]], list[int]]], Lowering]:
    """Register ``function(module, image, columns)``, which adds steps and gives the columns of the output.

    ``columns`` are the input columns of the module. The function raises ``NotNative`` for a module that it does not
    take. A class is looked up itself, not by its base classes.
    """

    def register(function: Callable[[M, ImageWriter, list[int]], list[int]]) -> Lowering:
        if module_class in _LOWERINGS:
            raise TypeError(f"two functions lower {module_class.__name__}")
        _LOWERINGS[module_class] = function
        return function

    return register


def lower(module: Module, image: ImageWriter, columns: Sequence[int], dtype: torch.dtype) -> list[int]:
    """Add the steps of a module; gives the columns of its output.

    A module without a lowering function is traced: see ``traced.py``. ``columns`` are the input columns of the module,
    ``dtype`` is their type. Raises ``NotNative`` if the lowering function does not take this module, or if the module
    computes something that has no native form.
    """
    if (lowering := _LOWERINGS.get(type(module))) is not None:
        return lowering(module, image, list(columns))
    return trace(module, image, columns, dtype)
