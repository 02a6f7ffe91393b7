"""The plots of a history: losses and metric by epoch, and the gains of candidates."""

from __future__ import annotations

from typing import Any

from windtunnel.errors import check_installed
from windtunnel.program.records.fit_record import CandidateResult, FitRecord
from windtunnel.program.records.number_text import value_text

BLUE, ORANGE, GREY = "#1f6fb4", "#d1731f", "#777777"


def plot_history(record: FitRecord) -> Any:
    """Draw losses and metric by epoch, and the gains of tested candidates, with matplotlib; returns the axes."""
    check_installed("a plot", "explain", "matplotlib")
    from matplotlib import pyplot as plt

    tested = [candidate for candidate in record.candidates if candidate.gain is not None]
    panels = 2 * bool(record.epochs) + bool(tested)
    _, axes = plt.subplots(1, panels, figsize=(4.5 * panels, 3.6), layout="constrained", squeeze=False)
    if record.epochs:
        _plot_epochs(record, axes[0, 0], axes[0, 1])
    if tested:
        _plot_gains(axes[0, -1], tested)
    for panel in axes[0]:
        panel.spines[["top", "right"]].set_visible(False)
    return axes[0]


def _plot_epochs(record: FitRecord, losses: Any, metrics: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    epochs = [row.epoch for row in record.epochs]
    by_epoch: dict[str, Any] = {"marker": "o", "markersize": 3}
    losses.plot(epochs[1:], [row.train_loss for row in record.epochs[1:]], color=GREY, label="training", **by_epoch)
    losses.plot(epochs, [row.val_loss for row in record.epochs], color=BLUE, label="validation", **by_epoch)
    losses.set_title("loss")
    losses.legend(frameon=False)
    metrics.axhline(record.start, color=GREY, linestyle="--", label=f"before fit {value_text(record.start)}")
    metrics.plot(epochs, [row.metric for row in record.epochs], color=BLUE, **by_epoch)
    metrics.set_title(f"{record.metric} on the {record.validated_on}")
    kept = record.kept
    name = f"kept: {kept.name}"
    if kept.epoch is None:
        metrics.axhline(record.best, color=ORANGE, label=f"{name} {value_text(record.best)}")
    else:
        star: dict[str, Any] = {"color": ORANGE, "markersize": 13, "label": f"{name} {value_text(record.best)}"}
        metrics.plot(record.best_epoch, record.best, "*", **star)
    metrics.legend(frameon=False)
    for panel in (losses, metrics):
        panel.set_xlabel("epoch")
        panel.ticklabel_format(axis="y", useOffset=False)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))


def _plot_gains(panel: Any, tested: list[CandidateResult]) -> None:
    from matplotlib.ticker import MaxNLocator

    panel.axvline(0, color="black", linewidth=0.8)
    panel.xaxis.set_major_locator(MaxNLocator(4))
    for place, candidate in enumerate(tested):
        assert candidate.gain is not None
        color = ORANGE if candidate.kept else GREY
        panel.errorbar(-candidate.gain, place, xerr=candidate.standard_error, fmt="o", color=color, capsize=4)
    panel.set_yticks(range(len(tested)), [candidate.name for candidate in tested])
    panel.set_ylim(len(tested) - 0.5, -0.5)
    panel.set_title("change of the loss ± standard error")
