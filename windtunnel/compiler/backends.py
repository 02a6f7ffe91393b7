"""The engines that run a compiled program."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from windtunnel.compiler.cuda_graphs import CudaGraphEngine
from windtunnel.compiler.engine import ProgramEngine
from windtunnel.compiler.exported import AotiEngine, ExportedEngine
from windtunnel.compiler.native.engine import NativeEngine
from windtunnel.compiler.native.part import TorchPart
from windtunnel.compiler.onnx_runtime import OnnxEngine
from windtunnel.compiler.scripted import TorchScriptEngine
from windtunnel.compiler.strategies import TreeRunner
from windtunnel.encode import RowEncoder
from windtunnel.errors import InvalidOption
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.program.program import Program, ProgramStep, Take
from windtunnel.program.scoring_pipeline import Engine
from windtunnel.program.translated import TranslatedPipeline

ENGINES: dict[str, type[ProgramEngine]] = {
    "torchscript": TorchScriptEngine,
    "exported": ExportedEngine,
    "aoti": AotiEngine,
    "onnx": OnnxEngine,
    "cudagraphs": CudaGraphEngine,
    "native": NativeEngine,
}
BACKENDS = ("auto", "torch", *ENGINES)
LOGGER = logging.getLogger("windtunnel")


def engine(net: TranslatedPipeline, backend: str) -> Engine | None:
    """The engine of a backend; None is eager torch.

    Raises
    ------
    InvalidOption
        The backend is not installed, or cannot run on the device.
    UnfaithfulOption
        The backend cannot run a step, or gives other outputs.
    """
    if backend == "torch":
        return None
    if backend == "native" and net.device().type != "cpu":
        raise InvalidOption(
            f"backend='native' runs on the CPU, and the program is on {net.device()}; give device='cpu'."
        )
    if backend == "native" and net.encoder.dtype != "float64":
        raise InvalidOption(
            f"backend='native' computes in float64, and this program is rounded to {net.encoder.dtype}; leave dtype "
            "out, or take backend='torch'."
        )
    runner = ENGINES[backend](net.program, net.encoder)
    runner.prepared()
    return runner


def native_engine(net: TranslatedPipeline) -> Engine | None:
    """The native engine of "auto"; None if torch runs the program.

    Torch runs programs on another device than the CPU, programs in float32, and programs without a native step. It also
    runs them if the native library cannot be built, which the logger "windtunnel" explains once.
    """
    if net.device().type != "cpu" or net.encoder.dtype != "float64":
        return None
    summed = net.facts().summed_counts  # the program that runs, unless a caller has encoded the rows
    program, encoder = (net.program, net.encoder) if summed is None else (summed.program, summed.encoder)
    try:
        runner = NativeEngine(program, encoder)
        runner.prepared()
    except InvalidOption as error:
        _warn_once(str(error))
        return None
    if all(isinstance(part, TorchPart) for part in runner.parts("scores")):
        return None
    return runner if summed is None else NativeEngine(net.program, net.encoder)


@cache
def _warn_once(reason: str) -> None:
    LOGGER.warning("backend='auto' takes torch: %s", reason)


def tree_runner(backend: str) -> TreeRunner:
    """A function that runs trees by themselves on a backend, to measure their strategies."""

    def runner(trees: HardTrees) -> Callable[[Tensor], Tensor]:
        columns = list(range(trees.width))
        program = Program([ProgramStep(trees, [Take(0, columns)], "trees")], {}).eval()
        encoder = RowEncoder(None, trees.width, columns, dtype="float64")
        engine = program if backend == "torch" else ENGINES[backend](program, encoder)

        def run(x: Tensor) -> Tensor:
            return engine.output("scores", x, torch.zeros((len(x), 0), dtype=torch.int64, device=x.device))

        return run

    return TreeRunner(backend, runner)


def usable_device(device: str | torch.device) -> torch.device:
    """The device of a name; ``InvalidOption`` where it is not there, or cannot hold float64."""
    try:
        placed = torch.device(device)
        torch.zeros(1, dtype=torch.float64, device=placed)
    except Exception as error:  # each backend of torch has errors of its own
        message = " ".join(str(error).split())[:200]
        raise InvalidOption(
            f"device={str(device)!r} cannot be used ({message}); accepted are 'cpu' and 'cuda'."
        ) from error
    if placed.type == "meta":
        raise InvalidOption("device='meta' holds no numbers; accepted are 'cpu' and 'cuda'.")
    return placed
