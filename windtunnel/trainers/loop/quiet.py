"""Silence of Lightning's announcements."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence Lightning's announcements, its advice to take a GPU, and a deprecation of torch that Lightning causes."""
    log = logging.getLogger("pytorch_lightning")
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="GPU available but not used", category=UserWarning)
            warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
            yield
    finally:
        log.setLevel(level)
