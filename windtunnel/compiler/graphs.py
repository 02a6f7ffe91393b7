"""Graphs that ``torch.export`` takes of modules, for any number of rows, and the comparison of what they give."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from threading import RLock

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

EXAMPLE_ROWS = 61
"""Rows of the example that a graph is taken from; an unusual width, so that no step takes rows for columns."""
COMPILING = RLock()
"""Held while PyTorch compiles or exports a module, or our own recorder does, whose state belongs to the process."""
MOSTLY = 0.9
"""The fraction of the example's numbers that must agree to the last digits."""


def take_graph(module: nn.Module, blocks: tuple[Tensor, ...]) -> ExportedProgram:
    """The graph of a module, of any number of rows."""
    return torch.export.export(module, blocks, dynamic_shapes=({0: torch.export.Dim("rows")},) * len(blocks))


def made_up_rows(rows: int, width: int, sizes: Sequence[int], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Made-up numbers ``[rows, width]``, and ids int64 ``[rows, len(sizes)]`` from 0 to below these sizes."""
    drawn = torch.Generator().manual_seed(0)
    numbers = 3 * torch.randn(rows, width, generator=drawn, dtype=dtype)
    ids = torch.rand(rows, len(sizes), generator=drawn, dtype=torch.float64) * torch.tensor(sizes, dtype=torch.float64)
    return numbers, ids.to(torch.int64)


def computed_in(module: nn.Module) -> torch.dtype:
    """float32 if a step computes in it, as soft trees do, else float64."""
    return torch.float32 if any(each.dtype == torch.float32 for each in module.parameters()) else torch.float64


def check_close(output: Tensor, expected: Tensor, computed: torch.dtype | None = None) -> None:
    """Raise unless nearly all numbers agree to the last digits; a few may be ill-conditioned on made-up rows.

    ``computed`` is the type that they were computed in, if that is not their own.
    """
    output, expected = output.cpu(), expected.cpu()
    fine, coarse = (1e-4, 1e-2) if torch.float32 in (computed, expected.dtype) else (1e-9, 1e-5)
    torch.testing.assert_close(output, expected, rtol=coarse, atol=coarse, equal_nan=True)
    same = torch.isclose(output, expected, rtol=fine, atol=fine, equal_nan=True).double().mean()
    if len(expected) > 1 and same < MOSTLY:
        raise ValueError(f"{1 - float(same):.0%} of the numbers are off by more than {fine}")


def message_of(error: BaseException) -> str:
    """The start of an error's message on one line."""
    return " ".join(str(error).split())[:300]


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """Silence the warnings, logs and prints of PyTorch's exporter about its own parts; errors are raised.

    One thread at a time: the exporter, these streams and the levels of loggers belong to the process.
    """
    with COMPILING:
        yield from _quiet_exporter()


def _quiet_exporter() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("torch", "torch.onnx")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
