"""A compiled program as CUDA graphs: few rows cost one launch, not one for each operator."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.export import ExportedProgram

from windtunnel.compiler.exported import ExportedEngine, Run
from windtunnel.errors import InvalidOption

MOST = 1024
"""Rows up to which graphs are recorded; of more, each operator takes longer than its launch."""
WARM_UP = 3
"""Runs before a recording, in which libraries set themselves up."""
DEVICE = "cuda"


class CudaGraphEngine(ExportedEngine):
    """Replays what a program launches on a GPU for 1, 2, 4, ... ``MOST`` rows; more go through the exported graph.

    A program that ``torch.export`` takes asks its numbers nothing in between, so that any rows launch the same.
    """

    BACKEND: ClassVar[str] = "cudagraphs"

    def prepare(self) -> dict[str, Run]:
        """Take the graphs of the scores and of the methods, and compare what recordings of them give.

        Raises
        ------
        InvalidOption
            The program is on no GPU, takes all rows together, or cannot be exported.
        """
        device = self._example()[0].device
        if device.type != DEVICE:
            raise InvalidOption(
                f"backend='cudagraphs' got a program on {str(device)!r}; accepted is a GPU. Give device='cuda', or "
                "choose backend='torchscript'."
            )
        if self.program.whole():
            raise InvalidOption(
                "backend='cudagraphs' cannot run a program in which rows depend on one another, as records hold more "
                "rows than are asked for. Choose backend='torchscript'."
            )
        return super().prepare()

    def ready(self, graph: ExportedProgram) -> Run:
        """What replays a graph."""
        return Replay(graph.module())


class Record(NamedTuple):
    """What was launched for so many rows: the memory that it reads and writes, and how to launch it again."""

    numbers: Tensor
    ids: Tensor
    answer: Tensor
    again: Callable[[], None]


class Replay:
    """Runs ``run(numbers, ids)``, by records of it where rows are few."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.records: dict[int, Record] = {}
        self.lock = Lock()  # as the memory of a record is that of all its calls

    def __call__(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """What ``run`` gives."""
        rows = len(ids)
        if not 0 < rows <= MOST:
            return self.run(numbers, ids)
        size = 1 << (rows - 1).bit_length()
        with self.lock:
            if size not in self.records:
                # The rows over and over: whatever fills the record is to be no stranger to the program than they are.
                over = torch.arange(size, device=ids.device) % rows
                given = numbers[over], ids[over]
                self.records[size] = Record(*given, *record(self.run, *given))
            held = self.records[size]
            held.numbers[:rows].copy_(numbers)
            held.ids[:rows].copy_(ids)
            held.again()
            return held.answer[:rows].clone()


def record(run: Run, numbers: Tensor, ids: Tensor) -> tuple[Tensor, Callable[[], None]]:
    """The memory where a CUDA graph of ``run`` leaves its answer, and what launches it."""
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UP):
            run(numbers, ids)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        answer = run(numbers, ids)
    return answer, graph.replay
