"""What a sweep hands back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    import optuna

    from windtunnel.api.translation import Translation


@dataclass(frozen=True)
class SweepResult:
    """What a sweep found.

    Attributes
    ----------
    study : optuna.Study
        All trials, with everything that Optuna knows of them.
    best_options : dict
        The options of the best trial that the space names: those of ``translate`` and of the recipe.
    best_value : float
        Its metric on the validation rows, which chose it, so that it flatters a little: score the model on other rows.
    net : Translation
        Its model.
    metric : str
        The name of the metric.
    greater_is_better : bool
        Its direction.
    objectives : tuple of str
        "metric", and "inference_cost" (operations per row, the fewer the better) where that is an objective too; then
        the best trial is the one of the front with the best metric.
    history : DataFrame
        One row per trial that is complete or pruned: ``trial``, ``state``, a column per objective, one per option,
        ``epochs``, ``best_epoch``, ``seconds``, ``default`` (whether it was the default recipe).
    front : tuple of int
        The numbers of the trials that no other beats: the Pareto front, or the best trial alone.
    folder : path or None
        Where ``best.windtunnel`` and ``trials/<number>.windtunnel`` of the front are.
    """

    study: optuna.Study
    best_options: dict[str, Any]
    best_value: float
    net: Translation = field(repr=False)
    metric: str
    greater_is_better: bool
    objectives: tuple[str, ...]
    history: pd.DataFrame = field(repr=False)
    front: tuple[int, ...]
    folder: Path | None

    @property
    def default_value(self) -> float:
        """The metric of the default recipe on the same validation rows."""
        return float(self.history.loc[self.history["default"], self.metric].iloc[0])

    def plots(self, folder: str | Path) -> list[Path]:
        """Draw the sweep; each plot as HTML, which needs ``plotly.min.js`` beside it, and as PNG.

        ``history`` (the metric by trial), ``importances`` (what matters, by PED-ANOVA), ``parallel`` (parallel
        coordinates), ``level`` (level against metric), and with two objectives ``front``. Options of which complete
        trials tried one value only have no axis; plots that would show nothing are left out.

        Parameters
        ----------
        folder : path
            Made where it is missing.

        Returns
        -------
        list of Path
            The files.

        Raises
        ------
        BadInput
            matplotlib or plotly is not installed.
        """
        from windtunnel.sweeps.plots import draw

        return draw(self, Path(folder))

    def __str__(self) -> str:
        counts = self.history["state"].value_counts()
        told = ", ".join(f"{counts[state]} {state}" for state in ("complete", "pruned") if state in counts)
        lines = [
            f"{len(self.history)} trials ({told}) of study {self.study.study_name!r}",
            f"{self.metric} on the validation rows: default {self.default_value:.6f}, best {self.best_value:.6f}",
            *(f"  {name} = {_short(value)}" for name, value in self.best_options.items()),
        ]
        if len(self.objectives) > 1:
            lines += ["front", *(f"  {line}" for line in self._front_table().to_string(index=False).splitlines())]
        return "\n".join(lines)

    def _front_table(self) -> pd.DataFrame:
        rows = self.history.set_index("trial", drop=False).loc[list(self.front)]
        return rows[["trial", self.metric, "inference_cost"]]


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def history(study: optuna.Study, columns: tuple[str, ...]) -> pd.DataFrame:
    """Make the table of the trials that count, one column for each objective's value."""
    rows = []
    for trial in study.get_trials(deepcopy=False):
        if trial.state.name not in ("COMPLETE", "PRUNED"):
            continue
        told = trial.user_attrs
        values = trial.values or [float("nan")] * len(columns)
        rows.append(
            {
                "trial": trial.number,
                "state": trial.state.name.lower(),
                **dict(zip(columns, values, strict=True)),
                **told["options"],
                **{name: told.get(name) for name in ("epochs", "best_epoch", "seconds")},
                "default": bool(told.get("default")),
            }
        )
    return pd.DataFrame(rows)
