"""The result of a sweep."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from windtunnel.program.records.number_text import value_text

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class SweepResult:
    """The result of ``windtunnel.sweep``.

    Attributes
    ----------
    study : optuna.Study
        All trials.
    best_options : dict
        The options of the best trial that the space names: those of ``translate`` and of the recipe.
    best_value : float
        Its metric on the validation rows. They chose the trial, so it is optimistic: score ``net`` on other rows.
    net : Translation
        Its model.
    metric : str
        The name of the metric.
    greater_is_better : bool
        Its direction.
    objectives : tuple of str
        ("metric",) or ("metric", "inference_cost"); the cost is in operations per row. With two objectives the best
        trial is the one of the Pareto front with the best metric.
    history : DataFrame
        One row per complete or pruned trial: ``trial``, ``state``, a column per objective and per option,
        ``trained_epochs``, ``best_epoch``, ``seconds``, ``default`` (whether it is the default trial).
    front : tuple of int
        Numbers of the trials of the Pareto front; with one objective, of the best trial.
    folder : path or None
        Holds ``best.windtunnel``, and ``trials/<number>.windtunnel`` of the front.
    """

    study: optuna.Study
    best_options: dict[str, Any]
    best_value: float
    net: Any = field(repr=False)
    metric: str
    greater_is_better: bool
    objectives: tuple[str, ...]
    history: pd.DataFrame = field(repr=False)
    front: tuple[int, ...]
    folder: Path | None

    @property
    def default_value(self) -> float:
        """The metric of the default trial on the same validation rows."""
        return float(self.history.loc[self.history["default"], self.metric].iloc[0])

    def plots(self, folder: str | Path) -> list[Path]:
        """Write Optuna's plots of the sweep, each as HTML (with ``plotly.min.js`` next to it) and as PNG.

        ``history`` (metric by trial), ``importances`` (by PED-ANOVA), ``parallel`` (parallel coordinates), ``level``
        (level against metric), and with two objectives ``front``. Options with a single value have no axis; plots that
        would show nothing are left out.

        Parameters
        ----------
        folder : path
            Created if missing.

        Returns
        -------
        list of Path
            The files.

        Raises
        ------
        InvalidOption
            matplotlib or plotly is not installed.
        """
        from windtunnel.sweeps.plots import write_plots

        return write_plots(self.study, self.metric, Path(folder))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """The summary and the history as HTML, for notebooks."""
        return f"<pre>{escape(str(self))}</pre>{self.history.to_html(index=False, max_rows=20)}"

    def __str__(self) -> str:
        states = ", ".join(f"{count} {state}" for state, count in self.history["state"].value_counts().items())
        default = " (the default)" * (self.best_value == self.default_value)
        lines = [
            f"{len(self.history)} trials ({states}) of study {self.study.study_name!r}",
            f"{self.metric} on the validation rows: default {value_text(self.default_value)}, "
            f"best {value_text(self.best_value)}{default}",
        ]
        for name, value in self.best_options.items():
            lines.append(f"  {name} = {f'{value:.4g}' if isinstance(value, float) else value}")
        if len(self.objectives) > 1:
            trials = self.history.set_index("trial", drop=False).loc[list(self.front)]
            table = trials[["trial", self.metric, "inference_cost"]].to_string(index=False)
            lines += ["front", *(f"  {line}" for line in table.splitlines())]
        return "\n".join(lines)


def history(study: optuna.Study, objectives: list[str]) -> pd.DataFrame:
    """The table of complete and pruned trials, with one column per objective."""
    rows = []
    for trial in study.get_trials(deepcopy=False):
        if trial.state.name in ("COMPLETE", "PRUNED"):
            attrs = trial.user_attrs
            values = trial.values or [float("nan")] * len(objectives)
            row = {"trial": trial.number, "state": trial.state.name.lower()}
            row |= dict(zip(objectives, values, strict=True)) | attrs["options"]
            row["trained_epochs"] = attrs["trained_epochs"]
            rows.append(row | {name: attrs[name] for name in ("best_epoch", "seconds", "default")})
    return pd.DataFrame(rows)
