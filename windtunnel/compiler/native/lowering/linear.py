"""Weighted sums of columns."""

from windtunnel.compiler.native.image import ImageWriter
from windtunnel.compiler.native.lowering.registry import lowers
from windtunnel.modules.linear.linear import Linear


@lowers(Linear)
def _linear(module: Linear, image: ImageWriter, columns: list[int]) -> list[int]:
    return image.step("linear", columns, len(module.bias), module.weight, module.bias)
