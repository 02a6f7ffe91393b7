"""Modules that map columns one by one."""

from windtunnel.compiler.native.image import ImageWriter
from windtunnel.compiler.native.lowering.registry import lowers
from windtunnel.modules.columns.affine import Affine


@lowers(Affine)
def _affine(module: Affine, image: ImageWriter, columns: list[int]) -> list[int]:
    return image.step("affine", columns, len(columns), module.scale, module.shift, module.center, module.unit)
