"""Processes that train together: sums over them, and checks that they agree."""

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


def process_weight(weight: Tensor) -> Tensor:
    """Factor of this process's weighted mean in the mean over n processes: W_r n / sum_r W_r."""
    local = weight.sum()
    total = local.detach().clone()
    dist.all_reduce(total)
    return local * world() / total.clamp_min(torch.finfo(total.dtype).tiny)


def check_steps(batches: float) -> None:
    """Reject epochs of unequal length, in which one process would wait for another for ever."""
    if world() == 1:
        return
    counts: list[float] = [0.0] * world()
    dist.all_gather_object(counts, batches)
    if len({*counts}) > 1:
        raise BadInput(f"the training loaders of the processes have {', '.join(map(str, counts))} batches; {_EQUAL}")


def in_step(items: Iterable[Any]) -> Iterator[Any]:
    """Items of a loader without a length; raises where another process has more or fewer."""
    for count, item in enumerate(items):
        _check_others(1.0, count)
        yield item
    _check_others(0.0, None)


def _check_others(more: float, count: int | None) -> None:
    (going,) = summed(more)
    if going not in (0.0, world()):
        here = "this process has no further batch" if count is None else f"after {count} batches this process has more"
        raise BadInput(f"{here}, and {int(going)} of {world()} processes have; {_EQUAL}")


def check_same(net: nn.Module) -> None:
    """Reject weights that differ between processes, each of which translates and selects interactions by itself."""
    if world() == 1:
        return
    digest = blake2b()
    for name, value in net.state_dict().items():
        # ``contiguous()`` keeps the strides of an empty tensor, which may be 0 and allow no view of bytes.
        whole = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        digest.update(name.encode() + whole.reshape(-1).view(torch.uint8).numpy().tobytes())
    digests: list[str] = [""] * world()
    dist.all_gather_object(digests, digest.hexdigest())
    if other := [number for number, value in enumerate(digests) if value != digests[0]]:
        raise BadInput(
            f"the translations of processes {', '.join(map(str, other))} differ from that of process 0; load or "
            "translate the same pipeline everywhere, with the same rows and seeds, on machines with the same versions"
        )


def launched(net: Any, devices: Any) -> dict[str, Any]:
    """Arguments of a Trainer for several processes; none for one. Processes that torchrun started are the devices."""
    count, here = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if count > 1 and dist.is_available() and dist.is_torchelastic_launched():
        return {"devices": here, "num_nodes": count // here, "strategy": _averaged(net)}
    return {} if devices in (1, "1") else {"strategy": _averaged(net)}


def _averaged(net: Any) -> DDPStrategy:
    """Averages gradients over the processes in each step.

    Only steps of single methods may get no gradient. Buffers never change; exchanged batch by batch, they would hang on
    validation rows that do not split evenly.
    """
    others = getattr(getattr(net, "program", None), "method_steps", None)
    return DDPStrategy(find_unused_parameters=bool(others), broadcast_buffers=False)


_EQUAL = (
    "every step takes one of each: give all of them as many, by (X, y), windtunnel.loader or windtunnel.stream, which "
    "share out rows themselves"
)


def quieten() -> None:
    """Filter warnings of torch about several processes that are no fault of the user."""
    # The oldest supported torch lacks its successor, forward_sync_buffers.
    warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated", category=FutureWarning)
    warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides", category=UserWarning)
