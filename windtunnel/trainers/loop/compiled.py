"""The forward pass of training through ``torch.compile``."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from types import FunctionType

import torch
from torch import Tensor, nn

from windtunnel.errors import BadInput

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""Modes of ``torch.compile``."""
RECORDED = ("reduce-overhead", "max-autotune")
"""Modes that record CUDA graphs on a GPU and replay them."""
_fits = count()


def compiled(net: nn.Module, mode: str) -> Callable[[Tensor, Tensor], Tensor]:
    """A forward and backward pass ``(numbers [B, n], ids [B, m]) -> scores [B, K]``, compiled at the first call.

    The net itself does not change. A second number of rows compiles again, then for any number of rows. In a mode that
    records CUDA graphs, the next call overwrites the output. ``BadInput`` when called, if torch cannot compile the net.
    """

    def scores(numbers: Tensor, ids: Tensor) -> Tensor:
        return net(numbers, ids)  # type: ignore[no-any-return]

    # torch caches at most eight compiled forms per code object, and records changing sizes under its name. With a new
    # code object and name, each fit starts with empty caches.
    code = scores.__code__.replace(co_name=f"scores_{next(_fits)}")
    function = FunctionType(code, scores.__globals__, closure=scores.__closure__)
    # Warnings of torch about its own code; the filters end with ``fit``.
    warnings.filterwarnings("ignore", r"`torch\.jit", DeprecationWarning)
    warnings.filterwarnings("ignore", r"torch\.searchsorted\(\): input value tensor is non-contiguous", UserWarning)
    run = torch.compile(function, mode=mode)

    def step(numbers: Tensor, ids: Tensor) -> Tensor:
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        with explained(mode):
            return run(numbers, ids)  # type: ignore[no-any-return]

    return step


@contextlib.contextmanager
def explained(mode: str) -> Iterator[None]:
    """Raise a failure of torch's compiler as a ``BadInput`` that says what to do."""
    from torch._dynamo.exc import TorchDynamoException  # the import takes a second

    try:
        yield
    except TorchDynamoException as error:
        raise BadInput(_why(mode, error)) from error


def check_tables(mode: str, tables: Iterable[str]) -> None:
    """Reject tables that are trained by rows: torch cannot compile sparse gradients."""
    if names := ", ".join(tables):
        raise BadInput(
            f"compile={mode!r} does not go with tables so large that they are trained by rows, here {names}: torch "
            "cannot compile their gradients; leave compile at None"
        )


def check_accumulation(mode: str, batches: int) -> None:
    """Reject accumulated gradients in a mode that records CUDA graphs, which overwrite them."""
    if batches > 1 and mode in RECORDED:
        raise BadInput(
            f"compile={mode!r} records CUDA graphs, which write the gradients of a batch over those of the batch "
            f"before, and this Trainer has accumulate_grad_batches={batches}; take larger batches instead, or compile="
            f"{'default' if mode == 'reduce-overhead' else 'max-autotune-no-cudagraphs'!r}"
        )


def _why(mode: str, error: Exception) -> str:
    inner = getattr(error, "inner_exception", error)
    message = f"{type(inner).__name__}: {next(iter(str(inner).splitlines()), '')}"
    if "InvalidCxxCompiler" in message:
        compiler = "Microsoft's cl" if sys.platform == "win32" else "g++"
        return (
            f"compile={mode!r} needs a C++ compiler, and torch finds none; install {compiler}, name one in the "
            "environment variable CXX, or leave compile at None"
        )
    return f"torch cannot compile a step of this translation with compile={mode!r}; leave it at None. torch: {message}"
