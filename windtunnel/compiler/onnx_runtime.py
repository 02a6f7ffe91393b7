"""A compiled program in ONNX Runtime, on the CPU."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from windtunnel.compiler.decompositions import DECOMPOSITIONS
from windtunnel.compiler.engine import ProgramEngine, Run, failing_step, sliced
from windtunnel.compiler.float64_constants import keep_float64
from windtunnel.compiler.graphs import EXAMPLE_ROWS, check_close, computed_in, message_of, quiet_exporter, take_graph
from windtunnel.compiler.onnx_trees import put_nodes, with_nodes
from windtunnel.errors import InvalidOption, UnfaithfulOption, check_installed
from windtunnel.modules.base import Module
from windtunnel.modules.trees.hard import TreeWalk
from windtunnel.program.program import Program

NEEDED = ("onnx", "onnxruntime", "onnxscript")
INPUTS = ("numbers", "ids")
AT_ONCE = 1 << 20
"""The most rows times trees of one call of a graph, which has no slices of its own."""


class OnnxEngine(ProgramEngine):
    """Runs a program as ONNX graphs in memory, one for each method."""

    def prepare(self) -> Mapping[str, Run]:
        """Export all methods together, then give each a session of its own, which computes no more than it needs."""
        check_installed("backend='onnx'", "onnx", *NEEDED)
        _check_device(self.program)
        methods = ["scores", *self.program.method_steps]
        program = AllMethods(copy.deepcopy(self.program))
        trees = with_nodes(program)
        try:
            model = exported(program, self.example(EXAMPLE_ROWS), INPUTS, methods)
            put_nodes(model, trees)
            sessions = {method: Session(model, INPUTS, method) for method in methods}
            with torch.no_grad():
                self.compare(sessions, EXAMPLE_ROWS, 1)
        except Exception as error:  # the exporter, its passes and the runtime all have errors of their own
            raise UnfaithfulOption(self.reason(error)) from error
        at_once = sys.maxsize if self.program.needs_all_rows() else max(1, AT_ONCE // _row_cost(self.program))
        return {method: sliced(run, at_once) for method, run in sessions.items()}

    def reason(self, error: Exception) -> str:
        """Name the step that cannot be exported, or that the runtime rejects, by trying each by itself."""
        where, cause = failing_step(self.program, self.example(EXAMPLE_ROWS), _check_alone)
        return (
            f"backend='onnx' cannot run {where}: {_operator(cause or error)}. Choose backend='torchscript' or 'torch'."
        )


def _check_alone(module: Module, columns: Tensor) -> None:
    """Export a module by itself, its trees as nodes, and compare its output."""
    alone = nn.Sequential(copy.deepcopy(module))
    trees = with_nodes(alone)
    model = exported(alone, (columns,), ("x",), ("y",))
    put_nodes(model, trees)
    run = Session(model, ("x",))
    for rows in (columns, columns[:1]):
        check_close(run(rows), module(rows), computed_in(module))


class Session:
    """Runs a model, or the part of it that one output needs, on blocks of these names."""

    def __init__(self, model: Any, names: Sequence[str], output: str | None = None) -> None:
        self.session = session(model, output)
        # The exporter leaves out a block that nothing reads.
        read = {value.name for value in self.session.get_inputs()}
        self.names = [name if name in read else None for name in names]

    def __call__(self, *blocks: Tensor) -> Tensor:
        """The first output."""
        return self.outputs(*blocks)[0]

    def outputs(self, *blocks: Tensor) -> list[Tensor]:
        """All outputs."""
        named = zip(self.names, blocks, strict=True)
        arrays = {name: block.contiguous().numpy() for name, block in named if name is not None}
        return [*map(torch.from_numpy, self.session.run(None, arrays))]


class AllMethods(nn.Module):
    """The scores of a program and the output of each method with a step of its own."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.steps, self.method_steps = program.steps, nn.ModuleList(program.method_steps.values())

    def forward(self, numbers: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        """All outputs, the scores first."""
        values = [numbers, ids]
        for step in self.steps:
            values.append(step(values))
        return (values[-1], *(step(values) for step in self.method_steps))


def exported(module: nn.Module, example: tuple[Tensor, ...], inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    """The ONNX model of a module that takes any number of rows."""
    with quiet_exporter(), torch.no_grad():
        graph = take_graph(module, example)
        graph = graph.run_decompositions(torch.export.default_decompositions() | DECOMPOSITIONS)
        flat = graph.module()
        if keep_float64(flat):
            graph = take_graph(flat, example)
        program = torch.onnx.export(
            graph,
            dynamo=True,
            input_names=list(inputs),
            output_names=list(outputs),
            verbose=False,
            optimize=False,
        )
    assert program is not None
    _tidy(program.model, outputs)
    return program.model_proto


def _tidy(model: Any, outputs: Sequence[str]) -> None:
    """Do what the exporter's own optimizer does, without its rules.

    They take numbers within 1e-5 of 1 for 1, and 1e-10, which keeps a divisor off 0, for 0.
    """
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass, OutputFixPass
    from onnxscript import optimizer

    optimizer.inline(model)
    optimizer.fold_constants(model)
    optimizer.remove_unused_nodes(model)
    # One value may be several outputs, of which only one has its name.
    OutputFixPass()(model)
    ClearMetadataAndDocStringPass()(model)  # the exporter's stack traces, with paths of this machine
    for value, name in zip(model.graph.outputs, outputs, strict=True):
        value.name = name


def session(model: Any, output: str | None = None) -> Any:
    """A session that runs a model, or the part of it that one of its outputs needs."""
    import onnxruntime
    from onnxscript import optimizer

    options = onnxruntime.SessionOptions()
    # Slices of the rows go to threads of their own, see ``TranslatedPipeline``; one row wakes none.
    options.intra_op_num_threads = 1
    # Extended fusions keep a float64 factor as a float32 attribute.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 3  # errors, which are raised as well
    if output is not None:
        whole, model = model, type(model)()
        model.CopyFrom(whole)
        del model.graph.output[:]
        model.graph.output.extend(value for value in whole.graph.output if value.name == output)
        # The runtime computes what leads nowhere, too.
        optimizer.remove_unused_nodes(model)
    return onnxruntime.InferenceSession(
        model.SerializeToString(),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["NoopElimination"],  # which takes a factor for 1 where float32 does
    )


def _check_device(program: Program) -> None:
    for tensor in (*program.parameters(), *program.buffers()):
        if tensor.device.type != "cpu":
            raise InvalidOption(
                f"backend='onnx' runs on the CPU, the program is on {tensor.device}; choose device='cpu', or "
                "backend='torchscript' or 'torch'."
            )


def _row_cost(program: Program) -> int:
    return max((module.row_cost for module in program.modules() if isinstance(module, TreeWalk)), default=1)


def _operator(error: BaseException) -> str:
    """The operator that an error is about, then the message of its first cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    operator = re.search(r"implementation for (\w+)|(aten[.:]+[\w.]+)", " ".join(str(error).split()))
    return (f"{operator[1] or operator[2]}: " if operator else "") + message_of(error)
