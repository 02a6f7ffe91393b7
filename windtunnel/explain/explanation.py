"""The result of an explanation, and how it is shown."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from windtunnel.encode.labels import labels_index
from windtunnel.errors import BadInput

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN_TERMS = 15
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
        A name for each of the K scores: the label that it speaks for, "prediction" of a regressor.
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
        """A row per explained row and score: "output" (if there are several), "base", each term, "score"."""
        frames = []
        for k, output in enumerate(self.outputs):
            frame = pd.DataFrame(self.values[:, :, k], index=self.data.index, columns=labels_index(self.names))
            frame.insert(0, "base", self.base[k])
            if len(self.outputs) > 1:
                frame.insert(0, "output", output)
            frame["score"] = self.base[k] + self.values[:, :, k].sum(axis=1)
            frames.append(frame)
        return pd.concat(frames).sort_index(kind="stable") if len(frames) > 1 else frames[0]

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
        from windtunnel.explain.plots import plot_importance, plot_waterfall

        if output is not None and output not in self.outputs:
            raise BadInput(f"output={output!r}; there are {', '.join(map(repr, self.outputs))}.")
        if row is None:
            return plot_importance(self, None if output is None else self.outputs.index(output), max_terms, ax)
        if not -len(self.values) <= row < len(self.values):
            raise BadInput(f"row={row}; there are {len(self.values)} rows, counted from 0.")
        scores = self.base + self.values[row].sum(axis=0)
        shown = int(scores.argmax()) if output is None else self.outputs.index(output)
        return plot_waterfall(self, row, shown, max_terms, ax)

    def __repr__(self) -> str:
        lines = [self._summary(), *(f"  {value:8.4f}  {name}" for name, value in self._top())]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """For notebooks: the terms with the largest contributions."""
        top = self._top()
        largest = max((value for _, value in top), default=0.0) or 1.0
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{value:.4f}</td>"
            f'<td><span class="bar" style="width: {12 * value / largest:.2f}em"></span></td></tr>'
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
            f"Mean absolute contribution ({self.unit}){shown}:"
        )

    def _top(self) -> list[tuple[str, float]]:
        return [(str(name), float(value)) for name, value in self.importance().head(SHOWN_TERMS).items()]


def _text(value: Any) -> str:
    """A raw value for a label."""
    if value is None or (pd.api.types.is_scalar(value) and pd.isna(value)):
        return "missing"
    text = f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)
    return text if len(text) <= 30 else f"{text[:29]}…"
