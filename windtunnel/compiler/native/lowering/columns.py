"""Modules over columns of numbers."""

import torch

from windtunnel.compiler.native.image import ImageWriter
from windtunnel.compiler.native.lowering.registry import lowers
from windtunnel.compiler.native.lowering.traced import BINARY, UNARY
from windtunnel.modules.columns.affine import Affine
from windtunnel.modules.columns.bins import Bins
from windtunnel.modules.imputers.imputer import Imputer
from windtunnel.modules.linear.linear import Linear

BELOW, UP_TO = range(2)
"""Which edges a number passes: those below it; those up to it."""


@lowers(Affine)
def _affine(module: Affine, image: ImageWriter, columns: list[int]) -> list[int]:
    return image.step("affine", columns, len(columns), module.scale, module.shift, module.center, module.unit)


@lowers(Imputer)
def _imputer(module: Imputer, image: ImageWriter, columns: list[int]) -> list[int]:
    kept = [columns[column] for column in module.kept]
    flagged = [columns[column] for column in module.flagged]
    marker = float(module.missing)
    filled = image.step("fill", kept, len(kept), module.fill, marker) if kept else []
    if not flagged:
        return filled
    if marker != marker:
        return filled + image.step("unary", flagged, len(flagged), UNARY.index("isnan"))
    markers = torch.full([len(flagged)], marker)
    return filled + image.step("binary_right", flagged, len(flagged), BINARY.index("eq"), markers)


@lowers(Bins)
def _bins(module: Bins, image: ImageWriter, columns: list[int]) -> list[int]:
    if module.single:
        columns = image.step("unary", columns, len(columns), UNARY.index("single"))
    counts = module.there.sum(dim=1).long()
    bins = image.step("bisect", columns, len(columns), module.edges, counts, module.edges.shape[1], UP_TO)
    if module.ordinal:
        return bins
    size = module.edges.shape[1] + 1
    flagged = [bins[position // size] for position in module.kept.tolist()]
    return image.step("binary_right", flagged, len(flagged), BINARY.index("eq"), (module.kept % size).double())


@lowers(Linear)
def _linear(module: Linear, image: ImageWriter, columns: list[int]) -> list[int]:
    return image.step("linear", columns, len(module.bias), module.weight, module.bias)
