"""Optuna without its announcements."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import optuna
from optuna.exceptions import ExperimentalWarning


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without Optuna's log, and its warnings that a part of it is new."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)
