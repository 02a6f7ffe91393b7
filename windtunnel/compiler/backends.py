"""What runs a compiled program."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windtunnel.translation import Engine, Translation

BACKENDS = ("torch", "torchscript", "onnx")


def engine(net: Translation, backend: str) -> Engine | None:
    """The engine of a backend; None is eager torch."""
    if backend == "torch":
        return None
    raise NotImplementedError(backend)
