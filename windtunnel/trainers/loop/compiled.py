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
"""Those of ``torch.compile``."""
RECORDED = ("reduce-overhead", "max-autotune")
"""Those that record CUDA graphs on a GPU and replay them."""
_fits = count()


def compiled(net: nn.Module, mode: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The scores of a net, and the gradients of its weights, by code that torch compiles when it is first run.

    The net itself is left as it is. Rows of another number than before are compiled for once more, then for any number.

    Parameters
    ----------
    net : nn.Module
        ``net(numbers [B, n], ids [B, m]) -> scores [B, K]``.
    mode : str
        One of ``MODES``.

    Returns
    -------
    callable
        Takes numbers and ids. On a GPU, what it gives in a mode that records is overwritten by the next call.

    Raises
    ------
    BadInput
        When called, where torch cannot compile the net.
    """

    def scores(numbers: Tensor, ids: Tensor) -> Tensor:
        return net(numbers, ids)  # type: ignore[no-any-return]

    # torch keeps at most eight compiled forms with the code of a function and runs it as it is from then on, and by the
    # name of the code it remembers which sizes have changed. Code of its own makes each fit the first, and is dropped.
    code = scores.__code__.replace(co_name=f"scores_{next(_fits)}")
    own = FunctionType(code, scores.__globals__, closure=scores.__closure__)
    _quieten()
    run = torch.compile(own, mode=mode)

    def step(numbers: Tensor, ids: Tensor) -> Tensor:
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        with explained(mode):
            return run(numbers, ids)  # type: ignore[no-any-return]

    return step


@contextlib.contextmanager
def explained(mode: str) -> Iterator[None]:
    """Say what to do where torch cannot compile; for the backward pass that may turn out when it is first run.

    Raises
    ------
    BadInput
    """
    from torch._dynamo.exc import TorchDynamoException  # takes a second, which those who do not compile need not wait

    try:
        yield
    except TorchDynamoException as error:
        raise BadInput(_why(mode, error)) from error


def check_tables(mode: str, tables: Iterable[str]) -> None:
    """Reject tables that are trained by rows: torch does not compile gradients that hold some rows only.

    Raises
    ------
    BadInput
        Where there are any.
    """
    if names := ", ".join(tables):
        raise BadInput(
            f"compile={mode!r} does not go with tables so large that they are trained by rows, here {names}: torch "
            "cannot compile their gradients; leave compile at None"
        )


def check_accumulation(mode: str, batches: int) -> None:
    """Reject gradients that are added up over batches: a recorded graph writes each over the one before.

    Raises
    ------
    BadInput
        For more than one batch per step, in a mode that records CUDA graphs.
    """
    if batches > 1 and mode in RECORDED:
        raise BadInput(
            f"compile={mode!r} records CUDA graphs, which write the gradients of a batch over those of the batch "
            f"before, and this Trainer has accumulate_grad_batches={batches}; take larger batches instead, or compile="
            f"{'default' if mode == 'reduce-overhead' else 'max-autotune-no-cudagraphs'!r}"
        )


def _quieten() -> None:
    """Filter what torch says of its own parts, and of the layouts that its compiler chose; ``fit`` ends the filters."""
    warnings.filterwarnings("ignore", r"`torch\.jit", DeprecationWarning)
    warnings.filterwarnings("ignore", r"torch\.searchsorted\(\): input value tensor is non-contiguous", UserWarning)


def _why(mode: str, error: Exception) -> str:
    inner = getattr(error, "inner_exception", error)
    said = f"{type(inner).__name__}: {next(iter(str(inner).splitlines()), '')}"
    if "InvalidCxxCompiler" in said:
        compiler = "Microsoft's cl" if sys.platform == "win32" else "g++"
        return (
            f"compile={mode!r} needs a C++ compiler, and torch finds none; install {compiler}, name one in the "
            "environment variable CXX, or leave compile at None"
        )
    return (
        f"torch cannot compile a step of this translation with compile={mode!r}; leave it at None. torch says: {said}"
    )
