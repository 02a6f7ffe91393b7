"""A method of a translation that is there only if its source has it."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from types import MethodType
from typing import Any


class SourceMethod:
    """Decorator of a method: access raises ``AttributeError`` if ``head.methods`` lacks its name.

    It does what scikit-learn's ``available_if`` does. To import that takes half as long as to import torch.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method = method
        update_wrapper(self, method)  # type: ignore[arg-type]

    def __get__(self, net: Any, owner: type) -> Any:
        if net is None:
            return self.method
        if self.method.__name__ not in net.head.methods:
            raise AttributeError(f"This {owner.__name__!r} has no attribute {self.method.__name__!r}")
        return MethodType(self.method, net)
