"""Signatures with every option, for ``inspect.signature``, ``help`` and completion."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def shows_options_of(*sources: Callable[..., Any]) -> Callable[[Function], Function]:
    """Replace ``**options`` in the signature of a function by the options of classes and functions that it hands on.

    Options are parameters with a default that the function has not itself.
    """

    def change(function: Function) -> Function:
        shown = signature(function)
        *named, _ = shown.parameters.values()
        options = {
            name: parameter.replace(kind=Parameter.KEYWORD_ONLY)
            for source in sources
            for name, parameter in signature(source).parameters.items()
            if name not in shown.parameters and parameter.default is not Parameter.empty
        }
        function.__signature__ = shown.replace(parameters=[*named, *options.values()])  # type: ignore[attr-defined]  # inspect reads it
        return function

    return change
