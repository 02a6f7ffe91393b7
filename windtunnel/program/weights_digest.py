"""``weights_digest``: equal for modules with equal weights."""

from __future__ import annotations

from hashlib import blake2b

import torch
from torch import nn


def weights_digest(module: nn.Module) -> str:
    """A hash of the names, types, shapes and values of all parameters and buffers."""
    digest = blake2b()
    for name, tensor in module.state_dict().items():
        # ``contiguous()`` keeps the strides of an empty tensor, which may be 0 and allow no view of bytes.
        whole = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        digest.update(f"{name} {whole.dtype} {tuple(whole.shape)}".encode())
        digest.update(whole.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
