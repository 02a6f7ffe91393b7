"""The inference cost of a translation: a count of operations, which does not depend on the load of the machine."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from windtunnel.encode import Batch
from windtunnel.modules.trees.soft.kernel.operation import products as soft_trees_products
from windtunnel.program.translated import TranslatedPipeline


class _CountOutputs(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves the mode untyped
    """Counts the elements of the tensors that operations return; views do not count."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if not any(value.alias_info is not None and not value.alias_info.is_write for value in func._schema.returns):
            tensors = output if isinstance(output, tuple | list) else [output]
            self.elements += sum(tensor.numel() for tensor in tensors if isinstance(tensor, Tensor))
        return output


def inference_cost(net: TranslatedPipeline, batch: Batch) -> float:
    """Operations per row of a prediction: the FLOPs of matrix products, plus one per number that operations write.

    This is a count and not a time, because measured times vary by 10 % and more on a shared machine, which would make
    the Pareto front random. Host steps and the encoding are left out, as no trial changes them. A few hundred rows are
    enough: the fixed cost of a call is divided among them.
    """
    program = net.program
    device = net.device()
    formulas = {torch.ops.windtunnel.soft_trees: soft_trees_products}
    with (
        torch.no_grad(),
        FlopCounterMode(display=False, custom_mapping=formulas) as products,
        _CountOutputs() as outputs,
    ):
        program(*(block.to(device) for block in batch))
    return float(products.get_total_flops() + outputs.elements) / len(batch.ids)
