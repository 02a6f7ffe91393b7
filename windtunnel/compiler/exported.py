"""A compiled program as graphs of ``torch.export``: run by torch, or compiled to native code by AOTInductor."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves

from windtunnel.compiler.engine import ProgramEngine, Run, failing_step, sliced
from windtunnel.compiler.graphs import EXAMPLE_ROWS, message_of, quiet_exporter, take_graph
from windtunnel.compiler.scripted import MethodProgram
from windtunnel.errors import UnfaithfulOption
from windtunnel.modules.trees.hard import TreeWalk
from windtunnel.program.program import Program

AT_ONCE = 1 << 16
"""The most rows times trees of one call of a graph, so that intermediate results stay in the cache."""
WIDEST = 1 << 20
"""The most numbers in one tensor of a graph, which holds a dozen tensors or more at a time."""
INDUCTOR: dict[str, Any] = {
    # A loop that waits for other threads is slower on few rows.
    "cpp.threads": 1,
    # Chained look-ups, such as those of bitvectors of trees, stay one loop.
    "realize_acc_reads_threshold": 1 << 20,
}


class ExportedEngine(ProgramEngine):
    """Runs a program as graphs that torch interprets, one for each method, on the device of the program."""

    BACKEND: ClassVar[str] = "exported"

    def prepare(self) -> Mapping[str, Run]:
        """Take the graphs of the scores and of the methods with a step of their own, and compare their outputs."""
        last_steps = {"scores": self.program.steps[-1], **self.program.method_steps}
        # Graphs cannot be taken of tensors made in inference mode.
        with torch.inference_mode(False), torch.no_grad(), quiet_exporter():
            blocks = self.example(EXAMPLE_ROWS)
            try:
                graphs = {
                    method: take_graph(MethodProgram(self.program, step).eval(), blocks)
                    for method, step in last_steps.items()
                }
            except Exception as error:  # the exporter has errors of many kinds
                where, cause = failing_step(self.program, blocks, lambda module, x: take_graph(module, (x,)))
                raise UnfaithfulOption(self._reason(where, cause or error)) from error
            try:
                runs = {
                    method: sliced(self.ready(graph), graph_rows_at_once(self.program, graph))
                    for method, graph in graphs.items()
                }
                self.compare(runs, EXAMPLE_ROWS, 0, 1)  # a graph may hold a number of rows fixed
            except Exception as error:  # compilers have errors of many kinds, too
                raise UnfaithfulOption(self._reason("the program as a whole", error)) from error
        return runs

    def ready(self, graph: ExportedProgram) -> Run:
        """A function that runs a graph."""
        return graph.module()

    def _reason(self, where: str, error: Exception) -> str:
        return (
            f"backend={self.BACKEND!r} cannot run {where}: {message_of(error)}. "
            "Choose backend='torchscript' or 'torch'."
        )


class AotiEngine(ExportedEngine):
    """Runs a program as native code that AOTInductor makes of its graphs, which takes a C++ compiler and a minute.

    The compiler puts what eager torch does in many passes over memory into one loop; the words of
    ``BitvectorTrees`` never leave the registers.
    """

    BACKEND: ClassVar[str] = "aoti"

    def ready(self, graph: ExportedProgram) -> Run:
        """Compile a graph."""
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "native.pt2")
            torch._inductor.aoti_compile_and_package(graph, package_path=path, inductor_configs=INDUCTOR)
            # The package's own call reads a description of its arguments each time, which takes longer than a row.
            call = torch._inductor.aoti_load_package(path).loader.boxed_run

        def run(numbers: Tensor, ids: Tensor) -> Tensor:
            return call([numbers.contiguous(), ids.contiguous()])[0]

        return run


def graph_rows_at_once(program: Program, graph: ExportedProgram) -> int:
    """The rows of one call of a graph, which has no slices of its own; on a GPU all of them."""
    if program.needs_all_rows() or any(buffer.is_cuda for buffer in program.buffers()):
        return sys.maxsize
    trees = max((len(module.root) for module in program.modules() if isinstance(module, TreeWalk)), default=1)
    return max(1, min(AT_ONCE // max(1, trees), int(WIDEST / max(1, _widest(graph)))))


def _widest(graph: ExportedProgram) -> float:
    """Numbers for each row in the largest tensor of a graph that was taken of ``EXAMPLE_ROWS`` rows."""
    nodes = (
        node for part in graph.graph_module.modules() if isinstance(part, GraphModule) for node in part.graph.nodes
    )
    values = tree_leaves([node.meta.get("val") for node in nodes])
    return max((_numbers(value.shape) for value in values if isinstance(value, Tensor)), default=0) / EXAMPLE_ROWS


def _numbers(shape: torch.Size) -> int:
    """How many numbers a tensor has in the example; 0 where that does not grow with the rows."""
    if not any(isinstance(size, torch.SymInt) for size in shape):
        return 0
    return math.prod(int(size.node.hint or 1) if isinstance(size, torch.SymInt) else size for size in shape)
