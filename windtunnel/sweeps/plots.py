"""The plots of a sweep, each as HTML and as PNG."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from optuna import visualization
from optuna.trial import FrozenTrial, TrialState

from windtunnel.errors import BadInput
from windtunnel.sweeps.quiet import quiet

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
    with quiet():
        # Said of the default where it lies outside of the space: one trial is no basis for a bar, and gets none.
        warnings.filterwarnings("ignore", message="Some regimes for parameter")
        return [path for name, plot in _plots(result).items() for path in _written(folder, name, plot)]


def _plots(result: SweepResult) -> dict[str, Callable[[Any], Any]]:
    """Name to what draws it with the one or the other backend of ``optuna.visualization``."""
    study = _by_metric(result) if len(result.objectives) > 1 else result.study
    named = {"target_name": result.metric}
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    plots: dict[str, Callable[[Any], Any]] = {
        "history": lambda backend: backend.plot_optimization_history(study, **named),
    }
    varied = _varied(complete)
    if len({trial.value for trial in complete}) > 1:
        plots["importances"] = lambda backend: backend.plot_param_importances(study, **named)
        plots["parallel"] = lambda backend: backend.plot_parallel_coordinate(study, params=varied, **named)
    if "level" in varied:
        plots["level"] = lambda backend: backend.plot_slice(study, params=["level"], **named)
    if len(result.objectives) > 1:
        names = [result.metric, "operations per row"]
        plots["front"] = lambda backend: backend.plot_pareto_front(result.study, target_names=names)
    return plots


def _by_metric(result: SweepResult) -> optuna.Study:
    """The trials with their metric alone: of several values, Optuna's plots cannot tell which way is up."""
    study = optuna.create_study(direction="maximize" if result.greater_is_better else "minimize")
    for one in result.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        value = one.values[0]
        study.add_trial(optuna.trial.create_trial(value=value, params=one.params, distributions=one.distributions))
    return study


def _varied(trials: list[FrozenTrial]) -> list[str]:
    """Options of which more than one value was tried; an axis for the others would have no length."""
    names = dict.fromkeys(name for trial in trials for name in trial.params)
    return [name for name in names if len({trial.params[name] for trial in trials if name in trial.params}) > 1]


def _written(folder: Path, name: str, plot: Callable[[Any], Any]) -> list[Path]:
    import matplotlib
    from matplotlib import pyplot as plt

    html, png = folder / f"{name}.html", folder / f"{name}.png"
    plot(visualization).write_html(html, include_plotlyjs="directory")
    # Optuna sets a style for the whole process; the context undoes it.
    with matplotlib.rc_context():
        axes = plot(visualization.matplotlib)
        figure = np.ravel(axes)[0].figure
        figure.set_size_inches(*SIZE.get(name, USUAL_SIZE))
        figure.savefig(png, dpi=120, bbox_inches="tight")
        plt.close(figure)
    return [html, png]
