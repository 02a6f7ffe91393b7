"""The plots of a sweep, each as HTML (plotly) and as PNG (matplotlib)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna import visualization
from optuna.exceptions import ExperimentalWarning
from optuna.trial import TrialState, create_trial

from windtunnel.atomic_write import replacing
from windtunnel.errors import check_installed

SIZE = {"parallel": (15.0, 6.0)}
DEFAULT_SIZE = (9.0, 5.0)
"""Inches."""


def write_plots(study: optuna.Study, metric: str, folder: Path) -> list[Path]:
    """Write every plot for which the study has enough trials; returns the files."""
    check_installed("plots of a sweep", "tune", "matplotlib", "plotly")
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        # Optuna warns if the default lies outside of the space: a single trial gets no bar of its own.
        warnings.filterwarnings("ignore", message="Some regimes for parameter")
        return [path for name, plot in _plots(study, metric).items() for path in _write(folder, name, plot)]


def _plots(study: optuna.Study, metric: str) -> dict[str, Callable[[Any], Any]]:
    """Name to a function that draws with one of the two backends of ``optuna.visualization``."""
    options: dict[str, Any] = {"target_name": metric}
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    both = study
    if len(both.directions) > 1:  # Optuna's other plots need a direction, and take that of a single objective only
        study = optuna.create_study(direction=both.directions[0])
        for t in trials:
            study.add_trial(create_trial(value=t.values[0], params=t.params, distributions=t.distributions))
    names = dict.fromkeys(name for trial in trials for name in trial.params)
    # An axis for an option with a single value would have no length.
    varied = [name for name in names if len({trial.params[name] for trial in trials if name in trial.params}) > 1]
    plots: dict[str, Callable[[Any], Any]] = {
        "history": lambda backend: backend.plot_optimization_history(study, **options)
    }
    if len({trial.values[0] for trial in trials}) > 1:
        plots["importances"] = lambda backend: backend.plot_param_importances(study, **options)
        plots["parallel"] = lambda backend: backend.plot_parallel_coordinate(study, params=varied, **options)
    if "level" in varied:
        plots["level"] = lambda backend: backend.plot_slice(study, params=["level"], **options)
    if both is not study:
        axes = [metric, "operations per row"]
        plots["front"] = lambda backend: backend.plot_pareto_front(both, target_names=axes)
    return plots


def _write(folder: Path, name: str, plot: Callable[[Any], Any]) -> list[Path]:
    import matplotlib
    from matplotlib import pyplot as plt

    html, png = folder / f"{name}.html", folder / f"{name}.png"
    with replacing(html) as temporary:
        plot(visualization).write_html(temporary, include_plotlyjs="directory")
    with matplotlib.rc_context():  # Optuna sets a style for the whole process
        figure = np.ravel(plot(visualization.matplotlib))[0].figure
        figure.set_size_inches(*SIZE.get(name, DEFAULT_SIZE))
        with replacing(png) as temporary:
            figure.savefig(temporary, dpi=120, bbox_inches="tight")
        plt.close(figure)
    return [html, png]
