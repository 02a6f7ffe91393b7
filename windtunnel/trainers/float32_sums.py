"""Joint training of tables and weighted sums in float32, from an exact start in float64."""

# No postponed annotations here, as in windtunnel.program.program.

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.func import functional_call

from windtunnel.modules.linear.factorization_machine import FactorizationMachine
from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.linear.multilayer import MultilayerPerceptron
from windtunnel.modules.tables.category_table import CategoryTable
from windtunnel.modules.tables.one_hot import OneHot
from windtunnel.program.program import Program, ProgramStep, steps_read

SUMS = (Linear, MultilayerPerceptron, FactorizationMachine)
"""Modules of weighted sums over many columns, for which float64 takes twice the memory and time."""
AT_ONCE = 2**16
"""Rows of a table that are compared with their float32 values at once."""


class Float32Step(ProgramStep):
    """A step that computes in float32 in training mode, and in float64 otherwise. Its weights and output are float64.

    So training starts from the exact scores, and validation has the numbers of ``predict``.
    """

    def forward(self, values: list[Tensor]) -> Tensor:
        """The output of the module, float64 ``[B, width out]``."""
        dtype = torch.float32 if self.training else torch.float64
        columns = torch.cat([take(values).to(dtype) for take in self.takes], dim=1)
        weights = {name: weight.to(dtype) for name, weight in self.module.named_parameters()}
        output: Tensor = functional_call(self.module, weights, (columns,))
        return output.double()


@contextlib.contextmanager
def float32_sums(program: Program) -> Iterator[None]:
    """Train weighted sums, and the category tables that only they read, in float32 within the context.

    Tables and their gradients are float32 if that loses nothing of their initial values (0 and 1, for example).
    """
    steps: dict[int, ProgramStep] = dict(enumerate(program.steps))
    sums = {at: step for at, step in steps.items() if isinstance(step.module, SUMS) and _trained(step)}
    others = [*(step for at, step in steps.items() if at not in sums), *program.method_steps.values()]
    read = {len(steps) - 1}.union(*map(steps_read, others))
    tables = [table for at, step in steps.items() if at not in read if (table := _table(step)) is not None]
    try:
        for at, step in sums.items():
            program.steps[at] = Float32Step(step.module, list(step.takes), step.name, step.rejects)
        for table in tables:
            table.data = table.data.float()
        yield
    finally:
        for at, step in sums.items():
            program.steps[at] = step
        for table in tables:
            table.data = table.data.double()


def _trained(step: ProgramStep) -> bool:
    return all(weight.requires_grad and weight.dtype == torch.float64 for weight in step.module.parameters())


def _table(step: ProgramStep) -> Tensor | None:
    """The values of a step's table, if float32 holds each of them."""
    if not isinstance(step.module, CategoryTable | OneHot):
        return None
    table = step.module.rows if isinstance(step.module, CategoryTable) else step.module.unit
    parts = table.detach().reshape(len(table) if table.dim() else 1, -1).split(AT_ONCE)  # type: ignore[no-untyped-call]
    return table if all(torch.equal(part.float().double(), part) for part in parts) else None
