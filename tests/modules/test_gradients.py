"""Gradients of the modules against finite differences, each at rows that really reach it."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import torch
from cases import CASES
from module_cases import MODULE_CASES
from parity import compiled

from windtunnel.modules.base import Module
from windtunnel.program.program import ProgramStep

ROWS = 4
KINKED = {
    "ClippedAffine": "rows lie on its bounds",
    "QuantileMap": "rows lie on its quantiles",
    "IsotonicCalibration": "scores lie on its steps",
    "LinearLeafTrees": "rows lie on its thresholds",
    "ThresholdedLinear": "a step function, with the gradient of the map behind it",
    "FactorModel": "reads codes",
    "BinTables": "rows lie on its edges",
    "CodeTables": "reads codes",
    "NonNegativeDescent": "stops by a tolerance, and takes no negative numbers",
    "TopicProportions": "takes no negative numbers, and rows of counts hold zeros",
    "SublinearTfidf": "the logarithm of counts, which are zero",
    "Chi2KernelMap": "takes no negative numbers, and rows of counts hold zeros",
}
"""Modules that finite differences say nothing of at the rows of the table; their gradients have to be finite."""


@cache
def reached() -> dict[str, tuple[Module, torch.Tensor]]:
    """One instance of every module that learns something, and float64 rows that reach it in some case of the table."""
    found: dict[str, tuple[Module, torch.Tensor]] = {}
    for name in MODULE_CASES:
        case, net = CASES[name], compiled(name)
        new = [
            at
            for at, step in enumerate(net.program.steps)
            if isinstance(step, ProgramStep)
            and type(step.module).__name__ not in found
            and any(parameter.is_floating_point() and parameter.numel() for parameter in step.module.parameters())
        ]
        if not new:
            continue
        batch = net.encode(case.rows()[:ROWS])
        for at in new:
            module: Any = net.program.steps[at].module
            found[type(module).__name__] = copy.deepcopy(module), net.program.inputs_of(at, *batch)
    return found


def test_gradients_are_those_of_finite_differences(subtests: Any) -> None:
    for name, (module, rows) in reached().items():
        with subtests.test(name):
            assert rows.shape[0] == ROWS
            parameters = [one for one in module.parameters() if one.is_floating_point() and one.numel()]
            for one in parameters:
                one.requires_grad_(True)
            finite = rows[torch.isfinite(rows.double()).all(dim=1)]
            given = finite.clone().requires_grad_(finite.is_floating_point())

            def scored(*tensors: torch.Tensor, module: Module = module) -> torch.Tensor:
                output = module(tensors[0])
                return output[torch.isfinite(output)]

            if name not in KINKED:
                assert torch.autograd.gradcheck(scored, (given, *parameters), atol=1e-4, rtol=1e-3)
                continue
            scored(given).sum().backward()
            assert all(one.grad is None or bool(one.grad.isfinite().all()) for one in (given, *parameters))
