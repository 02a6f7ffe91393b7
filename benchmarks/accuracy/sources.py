"""The pipelines that are translated: a strong one, the paper's, and five of the alternatives."""

from __future__ import annotations

from typing import Any

from sklearn.pipeline import Pipeline

from benchmarks.accuracy.alternatives import boosted, two_hot
from benchmarks.accuracy.task import Task

STRONG: dict[str, Any] = {
    "n_estimators": 250,
    "learning_rate": 0.1,
    "num_leaves": 31,
    "min_child_samples": 50,
    "colsample_bytree": 0.7,
    "subsample": 0.8,
    "subsample_freq": 1,
}
STRONG_PATIENCE = 30
PAPER: dict[str, Any] = {"n_estimators": 100, "num_leaves": 64, "learning_rate": 0.25}
"""The LightGBM of the paper, section 5.4."""
SOURCES = ("strong", "paper", "logistic", "lightgbm_native", "lightgbm_target_encoded", "xgboost", "catboost")
"""What translations start from, by the names of ``cells.FITTED``."""


def strong(task: Task, seed: int) -> Pipeline:
    """Two-hot categories and a LightGBM that stops early by the valid rows, at 250 trees at the latest."""
    return boosted(task, two_hot(task), STRONG, STRONG_PATIENCE, seed)


def paper(task: Task, seed: int) -> Pipeline:
    """Two-hot categories and the paper's LightGBM, which does not stop early."""
    return boosted(task, two_hot(task), PAPER, None, seed)
