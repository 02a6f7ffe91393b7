"""The devices of a training: the processes that they need, and the arguments of Lightning's Trainer for these."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.strategies import DDPStrategy
from torch import distributed as dist

from windtunnel.errors import InvalidOption


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
    """The devices of a list, of a text such as "0,1", or a number of them; 1 for "auto"."""
    if isinstance(devices, str) and "," in devices:
        devices = [device for device in devices.split(",") if device.strip()]
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


def trainer_arguments(devices: Any, *, leaves_parameters_out: bool) -> dict[str, Any]:
    """Arguments of a Trainer for several processes; none for one. Processes that torchrun started are the devices.

    ``leaves_parameters_out`` says that some parameters may get no gradient.
    """
    count, local_count = launched_processes(), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if count == 1 and devices in (1, "1"):
        return {}
    # Buffers never change, so they are not broadcast: this would hang on validation rows that do not split evenly.
    strategy = DDPStrategy(find_unused_parameters=leaves_parameters_out, broadcast_buffers=False)
    if count == 1:
        return {"strategy": strategy}
    return {"devices": local_count, "num_nodes": count // local_count, "strategy": strategy}


def ignore_process_warnings() -> None:
    """Ignore torch's warnings about several processes that the user cannot avoid."""
    # The oldest supported torch lacks its successor, forward_sync_buffers.
    warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated", category=FutureWarning)
    warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides", category=UserWarning)
