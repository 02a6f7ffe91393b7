"""Several processes that train together: how many they are, and what they have to agree on."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any

import torch
from pytorch_lightning.strategies import DDPStrategy
from torch import Tensor, distributed as dist, nn

from windtunnel.errors import BadInput


def world() -> int:
    """The number of processes; 1 before Lightning has connected them."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The number of this process, from 0."""
    return dist.get_rank() if world() > 1 else 0


def summed(*values: Tensor | float) -> tuple[Tensor | float, ...]:
    """The sums over all processes, in float64; the values themselves where there is one process."""
    if world() == 1:
        return values
    device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
    total = torch.tensor([float(value) for value in values], dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return tuple(total.tolist())


def share_of_weight(weight: Tensor) -> Tensor:
    """What the weighted mean of this process counts for in the mean of the processes' means: W_r n / sum_r W_r."""
    own = weight.sum()
    total = own.detach().clone()
    dist.all_reduce(total)
    return own * world() / total.clamp_min(torch.finfo(total.dtype).tiny)


def check_steps(batches: float) -> None:
    """Reject epochs of which one process has more batches than another, which would wait for it for ever."""
    if world() == 1:
        return
    theirs: list[float] = [0.0] * world()
    dist.all_gather_object(theirs, batches)
    if len({*theirs}) > 1:
        raise BadInput(f"the training loaders of the processes have {', '.join(map(str, theirs))} batches; {_EQUAL}")


def in_step(items: Iterable[Any]) -> Iterator[Any]:
    """The items of a loader without a length, as long as every process has another one; see ``check_steps``."""
    for count, item in enumerate(items):
        _check_going(1.0, count)
        yield item
    _check_going(0.0, None)


def _check_going(more: float, count: int | None) -> None:
    (going,) = summed(more)
    if going not in (0.0, world()):
        one = "this process has no further batch" if count is None else f"after {count} batches this process has more"
        raise BadInput(f"{one}, and {int(going)} of {world()} processes have; {_EQUAL}")


def check_same(net: nn.Module) -> None:
    """Reject to train together what is not the same: each process translates, and chooses a residual model, by itself."""
    if world() == 1:
        return
    digest = blake2b()
    for name, value in net.state_dict().items():
        # ``contiguous()`` leaves an empty tensor its strides, which may be 0; no view of bytes takes those.
        whole = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        digest.update(name.encode() + whole.reshape(-1).view(torch.uint8).numpy().tobytes())
    theirs: list[str] = [""] * world()
    dist.all_gather_object(theirs, digest.hexdigest())
    if other := [number for number, one in enumerate(theirs) if one != theirs[0]]:
        raise BadInput(
            f"the translations of processes {', '.join(map(str, other))} differ from that of process 0; load or "
            "translate the same pipeline everywhere, with the same rows and seeds, on machines with the same versions"
        )


def launched(net: Any, devices: Any) -> dict[str, Any]:
    """What a Trainer has to be told: nothing about one process, and else how gradients become the same in all.

    Where torchrun started several processes, they are the devices.
    """
    count, here = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if count > 1 and dist.is_available() and dist.is_torchelastic_launched():
        return {"devices": here, "num_nodes": count // here, "strategy": _averaged(net)}
    return {} if devices in (1, "1") else {"strategy": _averaged(net)}


def _averaged(net: Any) -> DDPStrategy:
    """Gradients averaged over the processes in each step.

    Only weights of other answers than the scores can be without a gradient. Buffers are facts that no process changes;
    exchanged batch by batch, they would hang on judged rows whose shares are not equal.
    """
    others = getattr(getattr(net, "program", None), "method_steps", None)
    return DDPStrategy(find_unused_parameters=bool(others), broadcast_buffers=False)


_EQUAL = (
    "every step takes one of each: give all of them as many, by (X, y), windtunnel.loader or windtunnel.stream, which "
    "share out rows themselves"
)


def quieten() -> None:
    """Filter what torch says about processes side by side that is neither a fault nor can be changed."""
    # Its successor, forward_sync_buffers, is younger than the oldest torch that is supported.
    warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated", category=FutureWarning)
    warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides", category=UserWarning)
