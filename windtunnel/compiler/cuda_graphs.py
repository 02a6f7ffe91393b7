"""A compiled program as CUDA graphs: few rows cost one launch, not one for each operator.

Without a GPU the tests replace a recording by a trace over fixed memory on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.export import ExportedProgram

from windtunnel.compiler.engine import Run
from windtunnel.compiler.exported import ExportedEngine
from windtunnel.errors import InvalidOption

MOST = 1024
"""Rows up to which graphs are recorded; of more, each operator takes longer than its launch."""
WARM_UP = 3
"""Runs before a recording, in which libraries set themselves up."""
DEVICE = "cuda"


class CudaGraphEngine(ExportedEngine):
    """Replays the launches of a program on a GPU for 1, 2, 4, ... ``MOST`` rows; more go through the exported graph.

    A program that ``torch.export`` takes has no branches on its numbers, so that all rows launch the same operators.
    """

    BACKEND: ClassVar[str] = "cudagraphs"

    def prepare(self) -> Mapping[str, Run]:
        """Take the graphs of the scores and of the methods, and compare the outputs of their recordings.

        Raises
        ------
        InvalidOption
            The program is on no GPU, or takes all rows together.
        UnfaithfulOption
            The program cannot be exported.
        """
        device = self.example(1)[0].device
        if device.type != DEVICE:
            raise InvalidOption(
                f"backend='cudagraphs' got a program on {str(device)!r}; accepted is a GPU. Give device='cuda', or "
                "choose backend='torchscript'."
            )
        if self.program.needs_all_rows():
            raise InvalidOption(
                "backend='cudagraphs' cannot run a program in which rows depend on one another, as records are padded "
                "with more rows. Choose backend='torchscript'."
            )
        return super().prepare()

    def ready(self, graph: ExportedProgram) -> Run:
        """A function that replays a graph."""
        return Replay(graph.module())


class Record(NamedTuple):
    """A recorded graph: the memory that it reads and writes, and its launch."""

    numbers: Tensor
    ids: Tensor
    output: Tensor
    launch: Callable[[], None]


class Replay:
    """``run(numbers, ids)``, replayed from a record for few rows."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.records: dict[int, Record] = {}
        self.lock = Lock()  # all calls share the memory of a record

    def __call__(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """The output of ``run``."""
        rows = len(ids)
        if not 0 < rows <= MOST:
            return self.run(numbers, ids)
        size = 1 << (rows - 1).bit_length()
        with self.lock:
            if size not in self.records:
                # Padded with the same rows again, so that no other values reach the program.
                repeated = torch.arange(size, device=ids.device) % rows
                blocks = numbers[repeated], ids[repeated]
                self.records[size] = Record(*blocks, *record(self.run, *blocks))
            recorded = self.records[size]
            recorded.numbers[:rows].copy_(numbers)
            recorded.ids[:rows].copy_(ids)
            recorded.launch()
            return recorded.output[:rows].clone()


def record(run: Run, numbers: Tensor, ids: Tensor) -> tuple[Tensor, Callable[[], None]]:
    """The memory that a CUDA graph of ``run`` writes its output to, and the launch of the graph."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            run(numbers, ids)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            output = run(numbers, ids)
    except torch.AcceleratorError as error:
        raise RuntimeError(
            "it could not be recorded as a CUDA graph, as where a step waits for a value that the GPU computes (a loop)"
        ) from error
    return output, graph.replay
