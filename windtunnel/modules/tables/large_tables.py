"""Tables too large to copy."""

from __future__ import annotations

from torch import nn

from windtunnel.modules.tables.category_table import CategoryTable
from windtunnel.modules.tables.code_tables import CodeTables
from windtunnel.modules.tables.target_statistics import TargetStatistics

LargeTable = CategoryTable | CodeTables | TargetStatistics
LARGE_TABLE = 2**22
"""Numbers from which a table is trained by rows: 16 MiB in float32.

Training would hold such a table eight times (weights, gradient, two moments, average, best epoch, initial weights, and
the weights put aside while the average is evaluated) and pass over all of them in each step.
"""


def large_tables(net: nn.Module) -> dict[str, LargeTable]:
    """The modules with a large table that is trained, by the name of that parameter."""
    return {
        f"{name}.rows" if name else "rows": module
        for name, module in net.named_modules()
        if isinstance(module, LargeTable) and module.rows.requires_grad and module.rows.numel() >= LARGE_TABLE
    }
