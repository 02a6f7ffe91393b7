"""A compiled program in ONNX Runtime, on the CPU."""

from __future__ import annotations

import copy
import logging
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from importlib.util import find_spec
from io import StringIO
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from windtunnel.compiler.decompositions import DECOMPOSITIONS
from windtunnel.compiler.engine import Held
from windtunnel.compiler.literals import keep_literals
from windtunnel.compiler.onnx_trees import put_nodes, with_nodes
from windtunnel.errors import InvalidOption, UnfaithfulOption
from windtunnel.modules.trees.hard import TreeWalk
from windtunnel.program.program import Program, ProgramStep

NEEDED = ("onnx", "onnxruntime", "onnxscript")
INPUTS = ("numbers", "ids")
EXAMPLE_ROWS = 61
"""Rows of the example that a graph is taken from; no width, so that no step takes the one for the other."""
MOSTLY = 0.9
"""The least share of the example's numbers that have to agree to the last digits."""
AT_ONCE = 1 << 20
"""Rows times trees that are walked at once: an exported graph has no slices of its own."""


class OnnxEngine(Held):
    """Runs a program as ONNX graphs, one for each method, which are kept in memory."""

    def prepare(self) -> Any:
        """Export all methods together, then give each a session of its own, which computes no more than it needs."""
        check_installed("backend='onnx'")
        _check_device(self.program)
        methods = ["scores", *self.program.answers]
        program = Methods(copy.deepcopy(self.program))
        trees = with_nodes(program)
        try:
            model = exported(program, self.example(EXAMPLE_ROWS), INPUTS, methods)
            put_nodes(model, trees)
            runs = {method: Fed(session(model, method)) for method in methods}
            self._compare(runs)
        except Exception as error:  # the exporter, its passes and the runtime all have errors of their own
            raise UnfaithfulOption(self.why(error)) from error
        return runs, 1 << 62 if self.program.whole() else max(1, AT_ONCE // _row_cost(self.program))

    @torch.no_grad()
    def _compare(self, runs: Mapping[str, Fed]) -> None:
        """Run a few rows, and one: exporters round constants, and kernels have bugs of their own."""
        numbers, ids = self.example(EXAMPLE_ROWS)
        for rows in (EXAMPLE_ROWS, 1):
            for method, run in runs.items():
                given = {"numbers": numbers[:rows], "ids": ids[:rows]}
                check_same(run(**given), self.program.answer(method, **given))

    def answer(self, method: str, numbers: Tensor, ids: Tensor) -> Tensor:
        """What ``Program.answer`` gives."""
        runs, at_once = self.prepared()
        run = runs.get(method, runs["scores"])
        if len(ids) <= at_once:
            return torch.from_numpy(run(numbers=numbers, ids=ids))
        parts = [
            torch.from_numpy(run(numbers=numbers[start : start + at_once], ids=ids[start : start + at_once]))
            for start in range(0, len(ids), at_once)
        ]
        return torch.cat(parts)

    @torch.no_grad()
    def why(self, error: Exception) -> str:
        """Name the step that cannot be exported, or that the runtime does not take, by trying each by itself."""
        values = list(self.example(EXAMPLE_ROWS))
        where = "the program as a whole"
        # Trees as nodes, which is how they go into the graph.
        tried = copy.deepcopy(self.program)
        trees = with_nodes(tried)
        steps, ones = ([*program.steps, *program.answers.values()] for program in (self.program, tried))
        for step, one in zip(steps, ones, strict=True):
            assert isinstance(step, ProgramStep) and isinstance(one, ProgramStep)
            given = step.gather(values)
            try:
                model = exported(one.module, (given,), ("x",), ("y",))
                put_nodes(model, trees)
                run = Fed(session(model, "y"))
                for some in (given, given[:1]):
                    check_same(run(x=some), step.module(some))
            except Exception as own:  # as above
                where, error = f"step {step.name!r} ({type(step.module).__name__})", own
                break
            if len(values) < 2 + len(self.program.steps):
                values.append(step(values))
        return f"backend='onnx' cannot run {where}: {_operator(error)}. Choose backend='torchscript' or 'torch'."


class Fed:
    """A session with one answer, and the blocks that it takes; those that it has no use for are left out."""

    def __init__(self, run: Any) -> None:
        self.run, self.names = run.run, [given.name for given in run.get_inputs()]

    def __call__(self, **blocks: Tensor) -> NDArray[Any]:
        """What it answers."""
        return self.run(None, fed(self.names, blocks))[0]  # type: ignore[no-any-return]


class Methods(nn.Module):
    """The scores of a program, then what each method with a step of its own returns."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.steps, self.answers = program.steps, nn.ModuleList(program.answers.values())

    def forward(self, numbers: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        """All answers, the scores first."""
        values = [numbers, ids]
        for step in self.steps:
            values.append(step(values))
        return (values[-1], *(step(values) for step in self.answers))


def check_installed(asked: str) -> None:
    """Reject what is asked for where its packages are missing."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise InvalidOption(f"{asked} needs {', '.join(missing)}, not installed; pip install 'windtunnel[onnx]'")


def exported(module: nn.Module, example: tuple[Tensor, ...], inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    """The ONNX model of a module that takes any number of rows."""
    rows = torch.export.Dim("rows")
    with quiet(), torch.no_grad():
        shapes = ({0: rows},) * len(example)
        graph = torch.export.export(module, example, dynamic_shapes=shapes)
        graph = graph.run_decompositions(torch.export.default_decompositions() | DECOMPOSITIONS)
        flat = graph.module()
        if keep_literals(flat):
            graph = torch.export.export(flat, example, dynamic_shapes=shapes)
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
    """What the exporter's own optimizer does, but for its rules.

    They take numbers within 1e-5 of 1 for 1, and 1e-10, which keeps a divisor off 0, for 0.
    """
    from onnx_ir.passes.common import OutputFixPass
    from onnxscript import optimizer

    optimizer.inline(model)
    optimizer.fold_constants(model)
    optimizer.remove_unused_nodes(model)
    # One value may be several outputs, of which only one has its name.
    OutputFixPass()(model)
    for value, name in zip(model.graph.outputs, outputs, strict=True):
        value.name = name


def session(model: Any, output: str | None = None) -> Any:
    """What runs a model, or the part of it that one of its outputs needs."""
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
        model.graph.output.extend(one for one in whole.graph.output if one.name == output)
        # The runtime computes what leads nowhere, too.
        optimizer.remove_unused_nodes(model)
    return onnxruntime.InferenceSession(
        model.SerializeToString(),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["NoopElimination"],  # which takes a factor for 1 where float32 does
    )


def check_same(found: NDArray[Any], wanted: Tensor, computed: torch.dtype | None = None) -> None:
    """Check that nearly all numbers agree to the last digits; a few may be ill-conditioned on made-up rows.

    ``computed`` is the type that they were computed in, where it is not their own.
    """
    given = torch.from_numpy(found)
    fine, coarse = (1e-4, 1e-2) if (computed or wanted.dtype) == torch.float32 else (1e-9, 1e-5)
    torch.testing.assert_close(given, wanted, rtol=coarse, atol=coarse, equal_nan=True)
    same = torch.isclose(given, wanted, rtol=fine, atol=fine, equal_nan=True).double().mean()
    if len(wanted) > 1 and same < MOSTLY:
        raise ValueError(f"{1 - float(same):.0%} of the numbers are off by more than {fine}")


def fed(names: Iterable[str], blocks: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    """The blocks that a session takes, as arrays."""
    return {name: blocks[name].contiguous().numpy() for name in names}


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
    """The operator that an error is about, then the words of its first cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    said = " ".join(str(error).split())
    found = re.search(r"implementation for (\w+)|(aten[.:]+[\w.]+)", said)
    return (f"{found[1] or found[2]}: " if found else "") + said[:300]


@contextmanager
def quiet() -> Iterator[None]:
    """Keep PyTorch's exporter from talking of its own parts, in warnings, logs and prints: errors are raised."""
    loggers = [logging.getLogger(name) for name in ("torch", "torch.onnx")]
    levels = [one.level for one in loggers]
    try:
        for one in loggers:
            one.setLevel(logging.CRITICAL)
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for one, level in zip(loggers, levels, strict=True):
            one.setLevel(level)
