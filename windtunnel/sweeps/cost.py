"""What a prediction costs: a count of operations, which is the same on a busy machine as on an idle one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from windtunnel.api.translation import Translation
from windtunnel.encode import Batch


class _Written(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves the mode untyped
    """Counts the numbers that operations write; views write none."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = func(*args, **(kwargs or {}))
        view = any(one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns)
        if not view:
            parts = answer if isinstance(answer, tuple | list) else [answer]
            self.numbers += sum(part.numel() for part in parts if isinstance(part, Tensor))
        return answer


def inference_cost(net: Translation, batch: Batch) -> float:
    """Operations per row of a prediction: the floating-point operations of matrix products, and one per number written.

    A count, not a time: seconds per row vary by a tenth and more from run to run where other programs share the
    machine, which would make a Pareto front of noise. Host steps and the encoding, which no trial changes, are left
    out; so is how well a device runs each kind of operation.

    Parameters
    ----------
    net : Translation
    batch : Batch
        Encoded rows, a few hundred: what is done once per call counts as a share of each.
    """
    program = net.program
    device = next(program.parameters()).device
    with torch.no_grad(), FlopCounterMode(display=False) as products, _Written() as written:
        program(*(block.to(device) for block in batch))
    return float(products.get_total_flops() + written.numbers) / len(batch.ids)
