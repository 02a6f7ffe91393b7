"""Processes that train together: sums over them, and checks that they agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, distributed as dist, nn

from windtunnel.errors import BadInput
from windtunnel.program.weights_digest import weights_digest


def world() -> int:
    """The number of processes; 1 before Lightning has connected them."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The number of this process, from 0."""
    return dist.get_rank() if world() > 1 else 0


def sum_processes(*values: Tensor | float) -> tuple[Tensor | float, ...]:
    """The sums over all processes, in float64; with one process the values unchanged."""
    if world() == 1:
        return values
    device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
    total = torch.tensor([float(value) for value in values], dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return tuple(total.tolist())


def gather(value: Any) -> list[Any]:
    """The value in each process, by its number."""
    values = [value] * world()
    if world() > 1:
        dist.all_gather_object(values, value)
    return values


def process_weight(weight: Tensor) -> Tensor:
    """W_r n / sum_r W_r: the factor with which weighted means of n processes average to the overall weighted mean."""
    local = weight.sum()
    total = local.detach().clone()
    dist.all_reduce(total)
    return local * world() / total.clamp_min(torch.finfo(total.dtype).tiny)


def check_steps(batches: float) -> None:
    """Reject epochs of unequal length, in which a process would wait for another forever."""
    if len({*(counts := gather(batches))}) > 1:
        raise BadInput(f"the training loaders of the processes have {', '.join(map(str, counts))} batches; {_EQUAL}")


def require_equal_lengths(items: Iterable[Any]) -> Iterator[Any]:
    """The items of a loader without a length; raises if another process has more or fewer."""
    for count, item in enumerate(items):
        _check_others(1.0, count)
        yield item
    _check_others(0.0, None)


def _check_others(more: float, count: int | None) -> None:
    (count_going,) = sum_processes(more)
    if count_going not in (0.0, world()):
        state = "this process has no further batch" if count is None else f"after {count} batches this process has more"
        raise BadInput(f"{state}, and {int(count_going)} of {world()} processes have; {_EQUAL}")


def check_equal_weights(net: nn.Module) -> None:
    """Reject weights that differ between processes: each process translates and selects interactions by itself."""
    if world() == 1:
        return
    digests = gather(weights_digest(net))
    if other := [number for number, value in enumerate(digests) if value != digests[0]]:
        raise BadInput(
            f"the translations of processes {', '.join(map(str, other))} differ from that of process 0; load or "
            "translate the same pipeline everywhere, with the same rows and seeds, on machines with the same versions"
        )


_EQUAL = (
    "each step takes one batch of every process, so all need the same number: use (X, y), windtunnel.loader or "
    "windtunnel.stream, which divide the rows among the processes"
)
