"""The learning curve of a report, as SVG."""

from __future__ import annotations

from windtunnel.api.reliability_svg import AFTER, BEFORE, MARGIN, SIDE, text_svg
from windtunnel.program.records.history import History

LEFT = 70
"""Room for the numbers of the vertical axis."""


def learning_curve_svg(history: History) -> str:
    """The metric on the validation rows by epoch, with lines at the source's value and at the value that was kept."""
    values = [row.metric for row in history.epochs]
    low, high = min(*values, history.start, history.best), max(*values, history.start, history.best)
    last, span = max(history.epochs[-1].epoch, 1), (high - low) or 1.0
    top, bottom, right = MARGIN, MARGIN + SIDE, LEFT + SIDE

    def y(value: float) -> float:
        return bottom - SIDE * (0.05 + 0.9 * (value - low) / span)

    points = " ".join(f"{LEFT + SIDE * row.epoch / last:.1f},{y(row.metric):.1f}" for row in history.epochs)
    parts = [
        text_svg(LEFT, top - 16, f"{history.metric} on the {history.validated_on}", "start"),
        f'<rect x="{LEFT}" y="{top}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#808080" stroke-opacity=".4"/>',
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/>',
        text_svg(LEFT + SIDE / 2, bottom + 32, "epoch", "middle"),
        text_svg(LEFT, bottom + 16, "0", "middle"),
        text_svg(right, bottom + 16, str(last), "middle"),
    ]
    for value, color, name in ((history.start, BEFORE, "before"), (history.best, AFTER, "after")):
        parts += [
            f'<line x1="{LEFT}" y1="{y(value):.1f}" x2="{right}" y2="{y(value):.1f}" stroke="{color}" '
            'stroke-width="2" stroke-dasharray="6 4"/>',
            text_svg(LEFT - 6, y(value) + 4, f"{value:.5g}", "end"),
            text_svg(right + 8, y(value) + 4, name, "start"),
        ]
    width, height = right + MARGIN + 30, bottom + MARGIN
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" fill="currentColor" '
        f'font-size="12" aria-label="learning curve">{"".join(parts)}</svg>'
    )
