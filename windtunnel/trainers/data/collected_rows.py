"""How many rows of a loader are collected in memory."""

from __future__ import annotations

from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.loader import DENSE_BYTES_OF_FIT, dense_bytes

MAX_RESIDUAL_ROWS = 200_000
"""Rows that are collected of a loader, and that interactions are selected on."""


def max_validation_rows(net: TranslatedPipeline) -> int:
    """The most validation rows to collect: as many as a residual model takes, else those of ``DENSE_BYTES_OF_FIT``."""
    return MAX_RESIDUAL_ROWS if net.takes_residual_model() else DENSE_BYTES_OF_FIT // dense_bytes(net, 1)
