"""Inverse links: from the output of ``predict`` back to raw scores."""

from __future__ import annotations

import math

import torch

from windtunnel.modules.base import Module
from windtunnel.modules.columns.elementwise import Elementwise

UNLINKED = {"exp": "log", "expm1": "log1p", "logistic": "logit"}
"""Link -> its inverse among ``windtunnel.modules.columns.elementwise.FUNCTIONS``."""


def unlinked(link: str, dtype: torch.dtype) -> list[Module]:
    """Modules that, one after the other, take what a link gives ``[B, K]`` back to scores that are finite.

    ``link`` is a key of ``UNLINKED``; logistic without a scale. The modules compute in ``dtype``: outputs are clipped
    to the range of the link in it.
    """
    limits = torch.finfo(dtype)
    highest = 1 - limits.eps if link == "logistic" else math.inf
    lowest = limits.eps - 1 if link == "expm1" else limits.tiny
    options = torch.tensor([[lowest, highest, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    modules: list[Module] = [Elementwise(options[0], "clip"), Elementwise(options[1], UNLINKED[link])]
    for module in modules:
        module.cast(dtype)
    return modules
