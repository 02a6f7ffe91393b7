"""What runs a compiled program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.compiler.held import Held
from windtunnel.compiler.onnx_runtime import OnnxEngine
from windtunnel.compiler.scripted import TorchScriptEngine

if TYPE_CHECKING:
    from windtunnel.translation import Engine, Translation

BACKENDS = ("torch", "torchscript", "onnx")
ENGINES: dict[str, type[Held]] = {"torchscript": TorchScriptEngine, "onnx": OnnxEngine}


def engine(net: Translation, backend: str) -> Engine | None:
    """The engine of a backend; None is eager torch.

    Raises
    ------
    UnfaithfulOption
        The backend cannot run a step, or is not installed.
    """
    if backend == "torch":
        return None
    one = ENGINES[backend](net.program)
    one.prepared()
    return one
