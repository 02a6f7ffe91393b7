"""Loops that end by what they have computed, in graphs that exporters take, which have no Python between tensors."""

# No postponed annotations here: torch.jit.script reads those of functions and takes no strings.

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def unfinished(going: Tensor) -> bool:
    """Whether anything is left to do; a graph that is being exported holds all steps."""
    if not torch.jit.is_scripting():  # type: ignore[attr-defined]
        if torch.compiler.is_exporting():
            return True
    return bool(going.any())


def while_loop(
    step: Callable[..., tuple[Tensor, ...]], state: tuple[Tensor, ...], facts: tuple[Tensor, ...], most: int
) -> tuple[Tensor, ...]:
    """``state = step(*state, *facts)`` as a loop of the graph that is being exported, which is not unrolled.

    Parameters
    ----------
    step : callable
        From the state to the next one, of the same shapes and types; it reads no tensor but its arguments.
    state : tuple of Tensor
        The first is bool and says what goes on; the loop ends when it holds no True.
    facts : tuple of Tensor
        What every step reads.
    most : int
        How many steps at most.
    """
    from torch._higher_order_ops.while_loop import while_loop

    loop: Any = while_loop

    def more(count: Tensor, *now: Tensor) -> Tensor:
        return (count < most) & now[0].any()

    def once(count: Tensor, *now: Tensor) -> tuple[Tensor, ...]:
        return (count + 1, *step(*now, *facts))

    final: tuple[Tensor, ...] = loop(more, once, (torch.zeros([], dtype=torch.int64), *state))
    return final[1:]
