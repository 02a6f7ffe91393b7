"""Interrupts while trained models are compared, which would lose all that was trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from windtunnel.progress import announce

Value = TypeVar("Value")


def despite_interrupt(compare: Callable[[], Value]) -> tuple[Value, KeyboardInterrupt | None]:
    """The result of a comparison, and the interrupt that came during it, after which it is repeated.

    The caller raises the interrupt once what was trained is installed. A second one ends the comparison.
    """
    try:
        return compare(), None
    except KeyboardInterrupt as interrupt:
        announce("interrupted: comparing what was trained; a second interrupt gives it up")
        interrupt.add_note("what was trained so far was compared and installed")
        return compare(), interrupt
