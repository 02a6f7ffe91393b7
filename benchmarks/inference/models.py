"""The one table of the models that are timed."""

from __future__ import annotations

from benchmarks.inference.model import Model
from benchmarks.inference.operators import OPERATORS
from benchmarks.inference.pipelines import PIPELINES
from benchmarks.inference.real import REAL
from benchmarks.inference.trees import TREES

GROUPS: dict[str, dict[str, Model]] = {"trees": TREES, "real": REAL, "operators": OPERATORS, "pipelines": PIPELINES}
MODELS: dict[str, Model] = {name: model for group in GROUPS.values() for name, model in group.items()}
"""Models by the name of their cells; one more is one line in the table of its group."""
