"""Plots of an explanation: bars of all rows, a waterfall of one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from windtunnel.errors import BadInput

if TYPE_CHECKING:
    from matplotlib.axes import Axes

UP, DOWN, NEUTRAL = "#e07b39", "#3b76af", "#9a9a9a"
"""Colours of contributions above and below 0, and of sums of small ones."""


class Explained(Protocol):
    """The part of an ``Explanation`` that the plots need."""

    @property
    def values(self) -> NDArray[np.float64]: ...  # noqa: D102  [B, terms, K]
    @property
    def base(self) -> NDArray[np.float64]: ...  # noqa: D102  [K]
    @property
    def names(self) -> list[str]: ...  # noqa: D102
    @property
    def outputs(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def unit(self) -> str: ...  # noqa: D102
    @property
    def standard_error(self) -> NDArray[np.float64] | None: ...  # noqa: D102

    def term_values(self, row: int) -> list[str]:
        """The raw values of each term in a row."""
        ...


def plot_importance(explanation: Explained, output: int | None, max_terms: int, ax: Axes | None) -> Axes:
    """Horizontal bars of the mean absolute contribution; of several scores one part of the bar for each."""
    chosen = range(len(explanation.outputs)) if output is None else [output]
    sizes = np.abs(explanation.values[:, :, list(chosen)]).mean(axis=0)  # [terms, outputs]
    order, names = _largest(sizes.sum(axis=1), max_terms), explanation.names
    labels, bars = [names[term] for term in order], [sizes[term] for term in order]
    if others := sorted(set(range(len(names))) - set(order)):
        labels.append(f"sum of {len(others)} others")
        bars.append(np.abs(explanation.values[:, others][:, :, list(chosen)].sum(axis=1)).mean(axis=0))
    ax = _axes(ax, labels)
    places, parts = np.arange(len(bars)), np.stack(bars)
    starts = np.zeros(len(bars))
    for position, k in enumerate(chosen):
        single = len(parts[0]) == 1
        ax.barh(
            places,
            parts[:, position],
            left=starts,
            color=[UP] * len(order) + [NEUTRAL] * (len(bars) - len(order)) if single else None,
            label=explanation.outputs[k],
        )
        starts = starts + parts[:, position]
    _annotate(ax, starts, [f"{total:.3g}" for total in starts])
    _finish(ax, labels, f"mean |contribution| ({explanation.unit})")
    ax.set_xlim(0, 1.1 * float(starts.max()) or 1.0)
    if len(parts[0]) > 1:
        ax.legend(frameon=False, loc="lower right")
    ax.set_title(f"Importance over {len(explanation.values):,} rows", loc="left")
    return ax


def plot_waterfall(explanation: Explained, row: int, output: int, max_terms: int, ax: Axes | None) -> Axes:
    """Contributions of a row, largest first, from the base at the top to the score at the bottom."""
    values = explanation.values[row, :, output]
    order = _largest(np.abs(values), max_terms)
    names, raw_values = explanation.names, explanation.term_values(row)
    labels = [f"{names[term]} = {raw_values[term]}" for term in order]
    steps, errors = values[order], _errors(explanation, row, output)[order]
    if others := len(values) - len(order):
        labels.append(f"sum of {others} others")
        rest, squares = values.sum() - steps.sum(), (_errors(explanation, row, output) ** 2).sum() - (errors**2).sum()
        steps, errors = np.append(steps, rest), np.append(errors, np.sqrt(max(squares, 0.0)))
    base = float(explanation.base[output])
    ends = base + np.cumsum(steps)
    starts = ends - steps
    ax = _axes(ax, ["base", *labels, "score"])
    places = np.arange(1, len(steps) + 1)
    ax.barh(places, steps, left=starts, color=[UP if step >= 0 else DOWN for step in steps])
    if errors.any():
        ax.errorbar(ends, places, xerr=errors, fmt="none", ecolor="#404040", elinewidth=1, capsize=2)
    score = float(base + values.sum())
    levels = [base, *ends]
    for place, level in enumerate(levels):  # from the end of a bar to the start of the next
        ax.plot([level, level], [place, place + 1], color=NEUTRAL, linewidth=0.8, zorder=0)
    for place, level in ((0, base), (len(steps) + 1, score)):
        ax.plot([level], [place], marker="D", color="#404040", markersize=6)
    texts = [f"{base:.3g}", *(f"{step:+.3g}" for step in steps), f"{score:.3g}"]
    _annotate(ax, [base, *np.maximum(starts, ends), score], texts)
    _finish(ax, ["base", *labels, "score"], explanation.unit)
    low, high = min(*levels, score), max(*levels, score)
    room = (high - low) or 1.0
    ax.set_xlim(low - 0.04 * room, high + 0.12 * room)
    name = f" for {explanation.outputs[output]}" if explanation.outputs[output] != "prediction" else ""
    ax.set_title(f"Row {row}: {explanation.unit} {score:.3g}{name}", loc="left")
    return ax


def _annotate(ax: Axes, ends: Iterable[float], texts: list[str]) -> None:
    """A text to the right of each bar."""
    for place, (end, text) in enumerate(zip(ends, texts, strict=True)):
        ax.annotate(text, (end, place), xytext=(6, 0), textcoords="offset points", va="center", fontsize=9)


def _errors(explanation: Explained, row: int, output: int) -> NDArray[np.float64]:
    if explanation.standard_error is None:
        return np.zeros(len(explanation.names))
    return explanation.standard_error[row, :, output]


def _largest(sizes: NDArray[np.float64], count: int) -> list[int]:
    """Positions of the largest sizes, descending; all if the others would be a single one."""
    if count < 1:
        raise BadInput(f"max_terms={count}; give 1 or more.")
    order: list[int] = np.argsort(-sizes, kind="stable").tolist()
    return order if len(order) <= count + 1 else order[:count]


def _axes(ax: Axes | None, labels: list[str]) -> Any:
    """The axes to draw on; by default of a new figure with room for the labels."""
    if ax is not None:
        return ax
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('plots need matplotlib: pip install "windtunnel[explain]"') from error
    from matplotlib import pyplot

    size = (6 + 0.07 * max(map(len, labels)), 1.2 + 0.3 * len(labels))
    figure: Figure = pyplot.figure(figsize=size, layout="constrained")
    return figure.add_subplot()


def _finish(ax: Axes, labels: list[str], unit: str) -> None:
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.set_xlabel(unit)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", alpha=0.3)
    ax.set_axisbelow(True)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
