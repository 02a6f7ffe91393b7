"""The lowering function of each module class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from windtunnel.compiler.native.image import ImageWriter
from windtunnel.modules.base import Module

M = TypeVar("M", bound=Module)
Lowering = Callable[[Any, ImageWriter, list[int]], list[int]]
_LOWERINGS: dict[type[Module], Lowering] = {}


class NotNative(Exception):
    """A module that the native engine does not compute; the message says why."""


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


def lower(module: Module, image: ImageWriter, columns: Sequence[int]) -> list[int]:
    """Add the steps of a module; gives the columns of its output.

    Raises
    ------
    NotNative
        The class has no lowering function, or the function does not take this module.
    """
    if (lowering := _LOWERINGS.get(type(module))) is None:
        raise NotNative(f"{type(module).__name__} has no native form")
    return lowering(module, image, list(columns))
