"""Soft trees."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.compiler.native.image import Fact, ImageWriter
from windtunnel.compiler.native.lowering.registry import lowers
from windtunnel.compiler.native.lowering.traced import NotNative
from windtunnel.modules.trees.soft.trees import SoftTrees

UNITS, ROWS = 4, 64
"""``WT_SOFT_UNITS`` and ``WT_SOFT_ROWS``."""
STEP = -2 / math.log(2)
"""tanh(y) = 2 / (1 + 2^(STEP y)) - 1."""


@lowers(SoftTrees)
def _soft_trees(module: SoftTrees, image: ImageWriter, columns: list[int]) -> list[int]:
    """Tanh becomes 2 s - 1 with s between 0 and 1; factors and constants go into the weights of the layer behind."""
    if module.any_category:
        raise NotNative("soft trees over categories have no native form")
    with torch.inference_mode(False), torch.no_grad():
        slope = module.slope.double() * STEP
        weight = _padded(_first_layer(module, len(columns)) * slope.unsqueeze(1), 2)
        node_bias = _padded(-module.threshold.double() * slope, 1)
        leaf_slope = module.leaf_slope.double() * STEP
        path = (module.path * module.path_mask()).double() * leaf_slope.unsqueeze(1)
        leaf_bias = _padded(module.path_bias.double() * leaf_slope - path.sum(dim=1), 1)
        path = _padded(_padded(2 * path, 1), 2)
        value = _padded(2 * module.masked_values().double(), 1).transpose(1, 2)
        nodes, leaves, special = weight.shape[2], path.shape[2], module.missing.flatten().nonzero()[:, 0]
    trees, width = module.feature.shape
    tree, node = special // width, special % width
    kind = module.missing.flatten()[special].long()
    places = torch.stack([node, module.feature.flatten()[special], torch.where(kind == module.ZERO, 2, 1)], dim=1)
    start = torch.searchsorted(tree.contiguous(), torch.arange(trees + 1))
    far = torch.sign(slope.flatten()[special]) * module.direction.flatten()[special] * 126.0
    scaling = map(_single, (module.center, module.scale, module.bound[0], module.bound[1]))
    (weights, *weight_places), (paths, *path_places) = _in_units(weight), _in_units(path)
    layers = map(_single, (weights, node_bias, paths, leaf_bias, value))
    facts: tuple[Fact, ...] = (*scaling, *layers, module.base, start, places, _single(far))
    facts = (*facts, *weight_places, *path_places)
    scratch = 4 * ROWS * (len(columns) + nodes + leaves)  # the inputs of the last rows are padded
    sizes, per_row = (trees, nodes, leaves), 4 * len(columns)
    outputs = len(module.base)
    return image.step("soft_trees", columns, outputs, *sizes, *facts, scratch=scratch, scratch_per_row=per_row)


def _first_layer(module: SoftTrees, width: int) -> Tensor:
    """The weights of the nodes, float64 ``[T, width, n]``."""
    if module.depth >= 3:
        return module.node_weight.double()
    return torch.nn.functional.one_hot(module.feature, width).transpose(1, 2).double()


def _padded(tensor: Tensor, dim: int) -> Tensor:
    """The tensor with zeros behind it, up to a multiple of ``UNITS`` along a dimension."""
    missing = -tensor.shape[dim] % UNITS
    shape = [missing if at == dim else size for at, size in enumerate(tensor.shape)]
    return torch.cat([tensor, tensor.new_zeros(shape)], dim)


def _in_units(weight: Tensor) -> tuple[Tensor, NDArray[np.uint32], NDArray[np.uint32]]:
    """The weights ``[T, inputs, units]`` of each input and four units, ``[W, 4]``, without those that are all 0.

    Behind them, where those of each four units start, ``[T * units / 4 + 1]``, and the input of each, ``[W]``.
    """
    trees, inputs, units = weight.shape
    of_units = weight.view(trees, inputs, units // UNITS, UNITS).transpose(1, 2).reshape(-1, inputs, UNITS)
    used = (of_units != 0).any(dim=2)
    start = torch.nn.functional.pad(used.sum(dim=1).cumsum(0), (1, 0))
    return of_units[used], start.numpy().astype(np.uint32), used.nonzero()[:, 1].numpy().astype(np.uint32)


def _single(tensor: Tensor) -> NDArray[np.int32]:
    """The bits of float32 numbers: an image would store them as float64."""
    return tensor.detach().cpu().to(torch.float32).contiguous().numpy().view(np.int32)
