"""What runs a compiled program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from windtunnel.compiler.exported import ExportedEngine, NativeEngine
from windtunnel.compiler.held import Held
from windtunnel.compiler.onnx_runtime import OnnxEngine
from windtunnel.compiler.scripted import TorchScriptEngine
from windtunnel.errors import UnfaithfulOption

if TYPE_CHECKING:
    from windtunnel.translation import Engine, Translation

ENGINES: dict[str, type[Held]] = {
    "torchscript": TorchScriptEngine,
    "exported": ExportedEngine,
    "aoti": NativeEngine,
    "onnx": OnnxEngine,
}
BACKENDS = ("torch", *ENGINES)


def engine(net: Translation, backend: str) -> Engine | None:
    """The engine of a backend; None is eager torch.

    Raises
    ------
    UnfaithfulOption
        The backend cannot run a step, or is not installed.
    """
    if backend == "torch":
        return None
    one = ENGINES[backend](net.program, net.encoder)
    one.prepared()
    return one


def place(device: str | torch.device) -> torch.device:
    """The device of a name; ``UnfaithfulOption`` where it is not there, or cannot hold float64."""
    try:
        found = torch.device(device)
        torch.zeros(1, dtype=torch.float64, device=found)
    except Exception as error:  # each backend of torch has errors of its own
        said = " ".join(str(error).split())[:200]
        raise UnfaithfulOption(
            f"device={str(device)!r} cannot be used ({said}); accepted are 'cpu' and 'cuda'."
        ) from error
    if found.type == "meta":
        raise UnfaithfulOption("device='meta' holds no numbers; accepted are 'cpu' and 'cuda'.")
    return found
