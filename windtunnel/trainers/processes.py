"""Processes that train together: sums over them, and checks that they agree."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.strategies import DDPStrategy
from torch import Tensor, distributed as dist, nn

from windtunnel.errors import BadInput, InvalidOption
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


def launched_processes() -> int:
    """The number of processes that torchrun started; 1 if it started none."""
    launched = dist.is_available() and dist.is_torchelastic_launched()
    return int(os.environ.get("WORLD_SIZE", 1)) if launched else 1


def planned_processes(accelerator: str, devices: Any) -> int:
    """The number of processes that will train together, one per device, before Lightning has connected them."""
    if (count := launched_processes()) > 1:
        return count
    if str(devices) in ("auto", "-1") and accelerator in ("auto", "gpu", "cuda"):
        return max(torch.cuda.device_count(), 1)
    return _device_count(devices)


def _device_count(devices: Any) -> int:
    """The devices of a list or a number of them; 1 for "auto"."""
    return len(devices) if isinstance(devices, list | tuple) else int(devices) if str(devices).isdigit() else 1


def check_devices(devices: Any) -> None:
    """Reject several devices where Lightning cannot start the processes: it runs the script again, once per device."""
    count = _device_count(devices)
    if count < 2 or launched_processes() > 1 or "LOCAL_RANK" in os.environ:
        return
    interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive)
    if interactive or not Path(sys.argv[0]).is_file():
        raise InvalidOption(
            f"devices={devices!r} needs a process for each device, which fit cannot start from a notebook, an "
            f"interactive session or python -c. Write a script and run it with: torchrun --standalone "
            f"--nproc-per-node {count} train.py; or give devices=1"
        )


def trainer_arguments(net: Any, devices: Any) -> dict[str, Any]:
    """Arguments of a Trainer for several processes; none for one. Processes that torchrun started are the devices."""
    count, local_count = launched_processes(), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if count > 1:
        return {"devices": local_count, "num_nodes": count // local_count, "strategy": _ddp_strategy(net)}
    return {} if devices in (1, "1") else {"strategy": _ddp_strategy(net)}


def _ddp_strategy(net: Any) -> DDPStrategy:
    """The strategy that averages gradients over the processes in each step.

    Only steps of methods may get no gradient. Buffers never change, so they are not broadcast: this would hang on
    validation rows that do not split evenly.
    """
    others = getattr(getattr(net, "program", None), "method_steps", None)
    return DDPStrategy(find_unused_parameters=bool(others), broadcast_buffers=False)


_EQUAL = (
    "each step takes one batch of every process, so all need the same number: use (X, y), windtunnel.loader or "
    "windtunnel.stream, which divide the rows among the processes"
)


def ignore_process_warnings() -> None:
    """Ignore torch's warnings about several processes that the user cannot avoid."""
    # The oldest supported torch lacks its successor, forward_sync_buffers.
    warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated", category=FutureWarning)
    warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides", category=UserWarning)
