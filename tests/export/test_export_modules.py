"""Every module that a translation can be made of has a graph, of torch.export and of ONNX, that gives its outputs.

Files are tested in ``test_export_formats.py``. Exporting takes seconds however small a program is, so that here the
modules of many cases stand side by side in one graph, each over columns of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from cases import CASES
from module_cases import MODULE_CASES
from parity import compiled
from torch import Tensor, nn

from windtunnel.compiler import onnx_runtime
from windtunnel.compiler.cost_model import TREE_STRATEGIES
from windtunnel.compiler.graphs import quiet_exporter, take_graph
from windtunnel.compiler.onnx_trees import put_nodes, with_nodes
from windtunnel.modules.base import MODULES, Module
from windtunnel.modules.kernels.support_vectors import PairCoupling
from windtunnel.modules.linear import residual_model  # noqa: F401  # so that its modules are in MODULES
from windtunnel.modules.tables import cell_statistics  # noqa: F401
from windtunnel.modules.tables.one_hot import OneHot
from windtunnel.modules.tables.target_statistics import AboveBorders

ROWS = 61
LOTS = 6
QUICK = [pytest.param(lot, marks=[pytest.mark.slow] if lot > 0 else []) for lot in range(LOTS)]
"""An ONNX graph of a lot takes 15 to 60 seconds; make test takes that of the first."""
OTHERS = {
    # What others inherit from, or stand for in the graphs of trees.
    "KernelMap", "TreeForm", "NearestRows", "PairSums", "TreeWalk", "WeightedSums",
    # What forms of trees, which ``test_export_formats.py`` asks for, have in common.
    "RankedTrees",
    # What is trained, of which that file has fine-tuned translations and a residual model.
    "ResidualModel", "ResidualSum", "LogProbabilities", "SoftBins", "SoftLeaves", "SoftSplits",
    "SoftThresholdedLinear", "SoftTrees",
    # What boosted residuals have, whose tests export a whole translation.
    "CellStatistics",
    # What sources of scikit-learn before 1.9 need, which test_scikit_learn_version.py has.
    "LastLabelIndex",
}  # fmt: skip


class SideBySide(nn.Module):
    """Modules, each over some of the columns, as the type that it is given in its program."""

    def __init__(self, them: list[tuple[Module, Tensor]]) -> None:
        super().__init__()
        self.each = nn.ModuleList(copy.deepcopy(module) for module, _ in them)
        self.widths = [given.shape[1] for _, given in them]
        self.dtypes = [given.dtype for _, given in them]

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """What each gives."""
        parts = x.split(self.widths, dim=1)
        return tuple(one(part.to(dtype)) for one, part, dtype in zip(self.each, parts, self.dtypes, strict=True))


def found() -> Iterator[tuple[Module, Tensor]]:
    """The first module of each class, and what reaches it in its case."""
    seen: set[str] = set()
    for name in MODULE_CASES:
        net = compiled(name)
        batch = net.encode(CASES[name].rows(ROWS))
        values = [batch.numbers, batch.ids]
        for step in (*net.program.steps, *net.program.method_steps.values()):
            classes = {type(one).__name__ for one in step.module.modules() if isinstance(one, Module)}
            with torch.no_grad():
                given = step.gather(values)
                values.append(step(values))
            if classes - seen:
                seen |= classes
                yield step.module.eval(), given
    drawn = torch.Generator().manual_seed(0)
    slope, scores = -torch.ones(3).double(), torch.randn(ROWS, 3, generator=drawn, dtype=torch.float64)
    # Those of options that no case has.
    yield PairCoupling(slope, 0.1 * slope, 3), scores
    yield AboveBorders(torch.zeros(3), torch.tensor([True, False, True])), scores
    # Which thousands of categories would take.
    one_hot = OneHot(torch.tensor([-1, 2, 0, 1]), torch.arange(3), torch.ones((), dtype=torch.float64))
    yield one_hot, torch.randint(4, (ROWS, 1), generator=drawn)


@cache
def every() -> list[tuple[Module, Tensor]]:
    with torch.enable_grad():  # which some sources are fitted with
        return list(found())


def test_every_module_is_there() -> None:
    met = {type(one).__name__ for module, _ in every() for one in module.modules()}
    ours = {name for name, one in MODULES.items() if one.__module__.startswith("windtunnel.")}  # tests have some too
    forms = {strategy.form.__name__ for strategy in TREE_STRATEGIES.values()}
    missing = ours - met - forms - OTHERS
    assert not missing, f"no case of MODULE_CASES has {sorted(missing)}; name one that does"
    assert OTHERS <= ours - met - forms, "OTHERS names what is met, or is no more"


def side_by_side(lot: int) -> tuple[SideBySide, Tensor]:
    them = every()[lot::LOTS]
    return SideBySide(them).eval().requires_grad_(False), torch.cat([given.double() for _, given in them], dim=1)


def assert_same(module: SideBySide, wanted: Sequence[Tensor], found: Sequence[Any]) -> None:
    for one, want, output in zip(module.each, wanted, found, strict=True):
        same = torch.isclose(torch.as_tensor(output), want, rtol=1e-9, atol=1e-9, equal_nan=True)
        assert same.all(), f"{type(one).__name__}: {int((~same).sum())} of {same.numel()} numbers differ"


@torch.no_grad()
@pytest.mark.parametrize("lot", range(LOTS))
def test_graphs_of_torch_export(lot: int) -> None:
    module, x = side_by_side(lot)
    with quiet_exporter():
        graph = take_graph(module, (x,)).module()
    for rows in (ROWS, 1):
        assert_same(module, module(x[:rows]), graph(x[:rows]))


@torch.no_grad()
@pytest.mark.parametrize("lot", QUICK)
def test_graphs_of_onnx(lot: int) -> None:
    module, x = side_by_side(lot)
    wanted = {rows: module(x[:rows]) for rows in (ROWS, 1)}
    outputs = [f"output_{at}" for at in range(len(module.each))]
    trees = with_nodes(module)
    model = onnx_runtime.exported(module, (x,), ("x",), outputs)
    put_nodes(model, trees)
    session = onnx_runtime.session(model)
    for rows, want in wanted.items():
        assert_same(module, want, session.run(outputs, {"x": x[:rows].numpy()}))
