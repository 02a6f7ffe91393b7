"""The result of an explanation, as a table, HTML and plots: bars of all rows, a waterfall of one."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from html import escape
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from windtunnel.encode.labels import labels_index
from windtunnel.errors import BadInput, check_installed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN_TERMS = 15
UP, DOWN, NEUTRAL = "#e07b39", "#3b76af", "#9a9a9a"
"""Colours of contributions above and below 0, and of sums of small ones."""
_STYLE = """
div.windtunnel-explanation { font: 14px/1.45 system-ui, sans-serif; }
div.windtunnel-explanation table { border-collapse: collapse; }
div.windtunnel-explanation td { text-align: left !important; padding: .1em .8em; border: 0; }
div.windtunnel-explanation .bar { display: inline-block; height: .8em; background: #4878a8; }
"""


@dataclass(frozen=True, repr=False)
class Explanation:
    """Contributions to the raw scores of B rows: ``base + values.sum(axis=1)`` is the raw score.

    Attributes
    ----------
    values : ndarray
        float64 ``[B, terms, K]``, in ``unit``. A term is a raw column, or an interaction of the residual model.
    base : ndarray
        float64 ``[K]``, the score that the contributions are added to.
    columns : tuple of tuple of str
        The raw columns of each term.
    data : DataFrame
        The raw values of the explained rows.
    outputs : tuple of str
        A name for each of the K scores: the label that it speaks for, "prediction" of a regressor, or
        "a rather than b" if there is one for each pair of labels.
    unit : str
        "log-odds", "probability", "prediction", "log of the prediction" or "raw score".
    method : str
        How the values were computed, and against what.
    standard_error : ndarray or None
        ``[B, terms, K]``, of sampled values; None if all are exact.
    """

    values: NDArray[np.float64]
    base: NDArray[np.float64]
    columns: tuple[tuple[str, ...], ...]
    data: pd.DataFrame
    outputs: tuple[str, ...]
    unit: str
    method: str
    standard_error: NDArray[np.float64] | None = None

    @property
    def names(self) -> list[str]:
        """The name of each term: its raw columns, joined by " x "."""
        return [" x ".join(columns) for columns in self.columns]

    def importance(self) -> pd.Series:
        """Mean absolute contribution of each term, over the rows and the scores, largest first."""
        values = np.abs(self.values).mean(axis=(0, 2))
        series = pd.Series(values, index=labels_index(self.names), name=f"mean |{self.unit}|")
        return series.sort_values(ascending=False)

    def to_frame(self) -> pd.DataFrame:
        """A row per explained row and score: "output" (if there are several), "base", each term, "score".

        Rows keep their order; the scores of a row follow one another. A term that has one of these names, as a column
        "score" of the rows has, is called "score (term)".
        """
        reserved = {"base", "score"} | ({"output"} if len(self.outputs) > 1 else set())
        terms = [_free_name(name, reserved, self.names) for name in self.names]
        frames = []
        for k, output in enumerate(self.outputs):
            values, base = self.values[:, :, k], np.full(len(self.data), self.base[k])
            table = np.column_stack([base, values, base + values.sum(axis=1)])
            columns = labels_index(["base", *terms, "score"])
            frame = pd.DataFrame(table, index=self.data.index, columns=columns)
            if len(self.outputs) > 1:
                frame.insert(0, "output", output)
            frames.append(frame)
        order = np.arange(len(frames) * len(self.data)).reshape(len(frames), len(self.data)).T.ravel()
        return pd.concat(frames).iloc[order] if len(frames) > 1 else frames[0]

    def term_values(self, row: int) -> list[str]:
        """The raw values of each term in a row, such as "39" or "ORD, 18"."""
        raw = self.data.iloc[row]
        return [", ".join(_text(raw[column]) for column in columns) for columns in self.columns]

    def plot(
        self, row: int | None = None, *, output: str | None = None, max_terms: int = SHOWN_TERMS, ax: Axes | None = None
    ) -> Axes:
        """Bars of the mean absolute contribution of each term; for a row, a waterfall from the base to its score.

        Parameters
        ----------
        row : int, optional
            Position of the row, from 0; negative ones count from the end.
        output : str, optional
            One of ``outputs``; by default all of them in the bars, and the greatest score of the row in the waterfall.
        max_terms : int
            The terms with the largest contributions; the others are drawn as their sum.
        ax : matplotlib Axes, optional
            By default a new figure.

        Raises
        ------
        BadInput
            A row or an output that is not there.
        """
        if output is not None and output not in self.outputs:
            raise BadInput(f"output={output!r}; there are {', '.join(map(repr, self.outputs))}.")
        if row is not None and not isinstance(row, Integral):
            raise BadInput(
                f"row={row!r}; give its position, from 0. A picture is written by plot().figure.savefig(path)"
            )
        if row is None:
            return _plot_importance(self, None if output is None else self.outputs.index(output), max_terms, ax)
        if not -len(self.values) <= row < len(self.values):
            raise BadInput(f"row={row}; there are {len(self.values)} rows, counted from 0.")
        scores = self.base + self.values[row].sum(axis=0)
        shown = int(scores.argmax()) if output is None else self.outputs.index(output)
        return _plot_waterfall(self, row, shown, max_terms, ax)

    def __repr__(self) -> str:
        lines = [self._summary(), *(f"  {value:8.4f}  {name}" for name, value in self._top())]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """For notebooks: the terms with the largest contributions."""
        top = self._top()
        largest = max((abs(value) for _, value in top), default=0.0) or 1.0
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{value:.4f}</td>"
            f'<td><span class="bar" style="width: {12 * abs(value) / largest:.2f}em"></span></td></tr>'
            for name, value in top
        )
        return (
            f'<div class="windtunnel-explanation"><style>{_STYLE}</style><p>{escape(self._summary())}</p>'
            f"<table><tbody>{rows}</tbody></table></div>"
        )

    def _summary(self) -> str:
        interactions = sum(len(columns) > 1 for columns in self.columns)
        count = f"{len(self.columns) - interactions} columns"
        if interactions:
            count += f" and {interactions} interaction" + "s" * (interactions > 1)
        shown = f", largest {SHOWN_TERMS}" if len(self.columns) > SHOWN_TERMS else ""
        error = ""
        if self.standard_error is not None:
            error = f"; standard error up to {self.standard_error.max(initial=0):.2g}"
        return (
            f"Explanation of {len(self.values):,} rows by {count} ({self.method}{error}). "
            f"{'Contribution' if self._is_of_one_score else 'Mean absolute contribution'} ({self.unit}){shown}:"
        )

    @property
    def _is_of_one_score(self) -> bool:
        return len(self.values) == 1 and len(self.outputs) == 1

    def _top(self) -> list[tuple[str, float]]:
        """The strongest terms: with their sign if one score is explained, else with means of absolute contributions."""
        if self._is_of_one_score:
            values = pd.Series(self.values[0, :, 0], labels_index(self.names)).sort_values(key=np.abs, ascending=False)
        else:
            values = self.importance()
        return [(str(name), float(value)) for name, value in values.head(SHOWN_TERMS).items()]


def _text(value: Any) -> str:
    """A raw value for a label."""
    if value is None or (pd.api.types.is_scalar(value) and pd.isna(value)):
        return "missing"
    text = f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)
    return text if len(text) <= 30 else f"{text[:29]}…"


def _free_name(name: str, reserved: Container[str], terms: Container[str]) -> str:
    """The name of a term, followed by " (term)" until it is not reserved, and not the name of another term."""
    free = name
    while free in reserved or (free != name and free in terms):
        free += " (term)"
    return free


def _plot_importance(explanation: Explanation, output: int | None, max_terms: int, ax: Axes | None) -> Axes:
    """Horizontal bars of the mean absolute contribution; of several scores one part of the bar for each."""
    chosen = [*range(len(explanation.outputs))] if output is None else [output]
    sizes = np.abs(explanation.values[:, :, chosen]).mean(axis=0)  # [terms, outputs]
    order, names = _largest(sizes.sum(axis=1), max_terms), explanation.names
    labels, bars = [names[term] for term in order], [sizes[term] for term in order]
    if others := sorted(set(range(len(names))) - set(order)):
        labels.append(f"sum of {len(others)} others")
        bars.append(np.abs(explanation.values[:, others][:, :, chosen].sum(axis=1)).mean(axis=0))
    ax = _axes(ax, labels)
    places, starts = np.arange(len(bars)), np.zeros(len(bars))
    colors = [UP] * len(order) + [NEUTRAL] * (len(bars) - len(order)) if len(chosen) == 1 else None
    for k, sizes_of_output in zip(chosen, np.stack(bars, axis=1), strict=True):
        ax.barh(places, sizes_of_output, left=starts, color=colors, label=explanation.outputs[k])
        starts = starts + sizes_of_output
    rounding = 1e-12 * starts.max()
    _annotate(ax, starts, [f"{total:.3g}" if total > rounding else "0" for total in starts])
    _finish(ax, labels, f"mean |contribution| ({explanation.unit})")
    ax.set_xlim(0, 1.1 * float(starts.max()) or 1.0)
    if len(chosen) > 1:
        ax.legend(frameon=False, loc="lower right")
    ax.set_title(f"Importance over {len(explanation.values):,} rows", loc="left")
    return ax


def _plot_waterfall(explanation: Explanation, row: int, output: int, max_terms: int, ax: Axes | None) -> Axes:
    """Contributions of a row, largest first, from the base at the top to the score at the bottom."""
    values = explanation.values[row, :, output]
    order = _largest(np.abs(values), max_terms)
    names, raw_values = explanation.names, explanation.term_values(row)
    labels = [f"{names[term]} = {raw_values[term]}" for term in order]
    all_errors = np.zeros(len(values))
    if explanation.standard_error is not None:
        all_errors = explanation.standard_error[row, :, output]
    steps, errors = values[order], all_errors[order]
    if others := len(values) - len(order):
        labels.append(f"sum of {others} others")
        rest, squares = values.sum() - steps.sum(), (all_errors**2).sum() - (errors**2).sum()
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
    check_installed("a plot", "explain", "matplotlib")
    from matplotlib import pyplot

    size = (6 + 0.07 * max(map(len, labels)), 1.2 + 0.3 * len(labels))
    return pyplot.figure(figsize=size, layout="constrained").add_subplot()


def _finish(ax: Axes, labels: list[str], unit: str) -> None:
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.set_xlabel(unit)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", alpha=0.3)
    ax.set_axisbelow(True)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
