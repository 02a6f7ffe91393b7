"""The learning curve of the demo, with the source pipeline for comparison."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.ticker import MaxNLocator

if TYPE_CHECKING:
    from windtunnel.program.records.history import History

NAMES = {"auroc": "AUC", "log_loss": "log loss", "rmse": "RMSE", "r2": "R²"}


def learning_curve(history: History, source: float, path: Path) -> None:
    """Draw the validation metric by epoch.

    Parameters
    ----------
    history : History
        Epoch 0 is before training, but with the interactions that were selected.
    source : float
        The metric of the source pipeline on the same rows.
    path : path
        The PNG to write.
    """
    epochs = [epoch.epoch for epoch in history.epochs]
    values = [epoch.metric for epoch in history.epochs]
    figure, axes = plt.subplots(figsize=(7, 4.6), dpi=150, layout="constrained")
    axes.axhline(source, color="#777777", linestyle="--", linewidth=1.5, label=f"source pipeline  {source:.4f}")
    axes.plot(epochs, values, color="#1f6fb4", marker="o", markersize=4, label="fine-tuned, epoch by epoch")
    label = "before training" if values[0] == history.start else "with interactions"
    axes.plot(0, values[0], "s", color="#1f6fb4", markersize=8, label=f"{label}  {values[0]:.4f}")
    best = f"best epoch {history.best_epoch}  {history.best:.4f}"
    axes.plot(history.best_epoch, history.best, "*", color="#d1731f", markersize=15, label=best)
    axes.set_xlabel("epoch")
    axes.set_ylabel(f"{NAMES.get(history.metric, history.metric)} on the validation rows")
    axes.set_title("A LightGBM pipeline, fine-tuned", loc="left")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e5e5e5")
    axes.set_axisbelow(True)
    figure.legend(frameon=False, loc="outside lower center", ncols=2)
    figure.savefig(path)
    plt.close(figure)
