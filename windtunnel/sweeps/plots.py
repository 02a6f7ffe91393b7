"""The plots of a sweep, each as HTML and as PNG."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna import visualization
from optuna.exceptions import ExperimentalWarning
from optuna.trial import FrozenTrial, TrialState

from windtunnel.errors import BadInput

if TYPE_CHECKING:
    from windtunnel.sweeps.result import SweepResult

SIZE = {"parallel": (15.0, 6.0)}
USUAL_SIZE = (9.0, 5.0)
"""Inches."""


def draw(result: SweepResult, folder: Path) -> list[Path]:
    """Write every plot that the trials are enough for."""
    if missing := [name for name in ("matplotlib", "plotly") if find_spec(name) is None]:
        raise BadInput(f"plots need {' and '.join(missing)}, not installed; pip install 'windtunnel[tune]'")
    folder.mkdir(parents=True, exist_ok=True)
    return [path for name, plot in _plots(result).items() for path in _written(folder, name, plot)]


def _plots(result: SweepResult) -> dict[str, Callable[[Any], Any]]:
    """Name to what draws it with the one or the other backend of ``optuna.visualization``."""
    study, name = result.study, result.metric
    target: Any = None if len(result.objectives) == 1 else _metric
    named = {"target": target, "target_name": name}
    complete = [trial for trial in study.get_trials(deepcopy=False) if trial.state == TrialState.COMPLETE]
    plots: dict[str, Callable[[Any], Any]] = {
        "history": lambda backend: backend.plot_optimization_history(study, **named),
    }
    if len({_metric(trial) for trial in complete}) > 1:
        varied = _varied(complete)
        sign = -1.0 if result.greater_is_better else 1.0
        # Told a target, Optuna asks what makes it small.
        small = target and {"target": lambda trial: sign * _metric(trial), "target_name": name}
        plots["importances"] = lambda backend: backend.plot_param_importances(study, **(small or named))
        plots["parallel"] = lambda backend: backend.plot_parallel_coordinate(study, params=varied, **named)
    if any("level" in trial.params for trial in complete):
        plots["level"] = lambda backend: backend.plot_slice(study, params=["level"], **named)
    if len(result.objectives) > 1:
        names = [name, "operations per row"]
        plots["front"] = lambda backend: backend.plot_pareto_front(study, target_names=names)
    return plots


def _varied(trials: list[FrozenTrial]) -> list[str]:
    """Options of which more than one value was tried; an axis for the others would have no length."""
    names = dict.fromkeys(name for trial in trials for name in trial.params)
    return [name for name in names if len({trial.params[name] for trial in trials if name in trial.params}) > 1]


def _metric(trial: FrozenTrial) -> float:
    return float(trial.values[0])


def _written(folder: Path, name: str, plot: Callable[[Any], Any]) -> list[Path]:
    import matplotlib
    from matplotlib import pyplot as plt

    html, png = folder / f"{name}.html", folder / f"{name}.png"
    backend = matplotlib.get_backend()
    # Optuna sets a style for the whole process; the context undoes it.
    with warnings.catch_warnings(), matplotlib.rc_context():
        warnings.simplefilter("ignore", ExperimentalWarning)
        warnings.filterwarnings("ignore", message="PedAnovaImportanceEvaluator computes the importances")
        plot(visualization).write_html(html, include_plotlyjs="directory")
        plt.switch_backend("agg")
        try:
            axes = plot(visualization.matplotlib)
            figure = np.ravel(axes)[0].figure
            figure.set_size_inches(*SIZE.get(name, USUAL_SIZE))
            figure.savefig(png, dpi=120, bbox_inches="tight")
        finally:
            plt.close("all")
            plt.switch_backend(backend)
    return [html, png]
