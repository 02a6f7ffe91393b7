"""The reliability diagram of a report, as SVG."""

from __future__ import annotations

from windtunnel.program.records.fit_details import Calibration, Reliability

SIDE, MARGIN = 240, 40
BEFORE, AFTER = "#9a9a9a", "#e07b39"


def reliability_svg(calibration: Calibration) -> str:
    """Observed frequency by predicted probability, before and after fit; a calibrated model is on the diagonal.

    The area of a point is the part of the validation rows in its bin.
    """
    width, height = SIDE + 2 * MARGIN + 130, SIDE + 2 * MARGIN
    low, high = MARGIN, MARGIN + SIDE
    upright = text_svg(14, low + SIDE / 2, "observed frequency", "middle")
    parts = [
        text_svg(low, low - 16, "Calibration on the validation rows", "start"),
        f'<rect x="{low}" y="{low}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#808080" stroke-opacity=".4"/>',
        f'<line x1="{low}" y1="{high}" x2="{high}" y2="{low}" stroke="#808080" stroke-dasharray="4 4"/>',
        *_curve(calibration.before, BEFORE),
        *_curve(calibration.after, AFTER),
        text_svg(low + SIDE / 2, high + 32, "predicted probability", "middle"),
        f'<g transform="rotate(-90 14 {low + SIDE / 2})">{upright}</g>',
        *(text_svg(low + SIDE * tick, high + 16, f"{tick:g}", "middle") for tick in (0, 0.5, 1)),
        *(text_svg(low - 6, high - SIDE * tick + 4, f"{tick:g}", "end") for tick in (0, 0.5, 1)),
    ]
    for line, (name, color) in enumerate((("before", BEFORE), ("after", AFTER))):
        parts.append(f'<circle cx="{high + 16}" cy="{low + 10 + 20 * line}" r="5" fill="{color}"/>')
        parts.append(text_svg(high + 28, low + 14 + 20 * line, name, "start"))
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" fill="currentColor" '
        f'font-size="12" aria-label="reliability diagram">{"".join(parts)}</svg>'
    )


def _curve(reliability: Reliability, color: str) -> list[str]:
    places = [
        (MARGIN + SIDE * predicted, MARGIN + SIDE * (1 - observed))
        for predicted, observed in zip(reliability.predicted, reliability.observed, strict=True)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return [
        f'<polyline points="{line}" fill="none" stroke="{color}"/>',
        *(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{2 + 10 * weight**0.5:.1f}" fill="{color}" fill-opacity=".7"/>'
            for (x, y), weight in zip(places, reliability.weight, strict=True)
        ),
    ]


def text_svg(x: float, y: float, text: str, anchor: str) -> str:
    """A text at a place."""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>'
