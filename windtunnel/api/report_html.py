"""The parts of a report in HTML: the page, tables, and two figures as SVG."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from html import escape
from math import isfinite

from windtunnel.program.records.fit_details import Calibration, Reliability
from windtunnel.program.records.history import History

STYLE = """
div.windtunnel-report { font: 14px/1.45 system-ui, sans-serif; max-width: 72em; }
div.windtunnel-report dl { display: grid; grid-template-columns: max-content 1fr; gap: .15em 1em; margin: 0 0 .9em; }
div.windtunnel-report dt { opacity: .65; float: none; width: auto; white-space: nowrap; }
div.windtunnel-report dd { margin: 0; }
div.windtunnel-report table { border-collapse: collapse; width: 100%; }
div.windtunnel-report th, div.windtunnel-report td { text-align: left !important; padding: .35em .8em;
  vertical-align: top; border-bottom: 1px solid rgba(128, 128, 128, .3); }
div.windtunnel-report th { font-weight: 600; border-bottom-width: 2px; white-space: nowrap; }
div.windtunnel-report .number { text-align: right !important; font-variant-numeric: tabular-nums; white-space: nowrap; }
div.windtunnel-report table.comparison { width: auto; margin: 0 0 1em; }
div.windtunnel-report .wide { overflow-x: auto; margin-bottom: 1.5em; }
div.windtunnel-report .wide table { min-width: 42em; }
div.windtunnel-report .figures { display: flex; flex-wrap: wrap; gap: 1em; margin-bottom: 1em; }
div.windtunnel-report svg { max-width: 100%; height: auto; }
@media (max-width: 40em) { div.windtunnel-report dl { display: block; }
  div.windtunnel-report dd { margin-bottom: .5em; } }
div.windtunnel-report tfoot td { border-bottom: 0; font-weight: 600; }
"""
SIDE, MARGIN = 240, 40
"""Pixels of a figure's square, and around it."""
BEFORE, AFTER = "#9a9a9a", "#e07b39"


def html_page(body: str, footer: str) -> str:
    """One page without other files."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>WindTunnel report</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<style>:root { color-scheme: light dark; } "
        "body { margin: clamp(.8em, 3vw, 2em); font: 14px/1.45 system-ui, sans-serif; }</style></head>"
        f"<body><h1>WindTunnel report</h1>{body}<p>{escape(footer)}</p></body></html>\n"
    )


def html_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str | list[str]]],
    numeric: Collection[int],
    *,
    total: Sequence[str] = (),
    kind: str = "",
) -> str:
    """A table with ``numeric`` columns aligned to the right; a cell that is a list has a line for each text."""

    def row(cells: Sequence[str | list[str]], tag: str = "td") -> str:
        return f"<tr>{''.join(cell(at, content, tag) for at, content in enumerate(cells))}</tr>"

    def cell(column: int, content: str | list[str], tag: str) -> str:
        opening = f'<{tag} class="number">' if column in numeric else f"<{tag}>"
        if isinstance(content, list):
            return f"{opening}{''.join(f'<div>{escape(line)}</div>' for line in content)}</{tag}>"
        return f"{opening}{escape(content)}</{tag}>"

    attribute = f' class="{kind}"' if kind else ""
    foot = f"<tfoot>{row(total)}</tfoot>" if total else ""
    return (
        f"<table{attribute}><thead>{row(headings, 'th')}</thead><tbody>{''.join(map(row, rows))}</tbody>{foot}</table>"
    )


def learning_curve(history: History) -> str:
    """The metric on the validation rows by epoch, with lines at the source's value and at the value that was kept."""
    epochs = [row for row in history.epochs if isfinite(row.metric)]  # of a diverged training the first ones
    values = [*(row.metric for row in epochs), history.start, history.best]
    low, high = min(values), max(values)
    last, span, left = max(history.epochs[-1].epoch, 1), (high - low) or 1.0, 70  # room for the numbers on the left
    right, bottom = left + SIDE, MARGIN + SIDE

    def y(value: float) -> float:
        return bottom - SIDE * (0.05 + 0.9 * (value - low) / span)

    points = " ".join(f"{left + SIDE * row.epoch / last:.1f},{y(row.metric):.1f}" for row in epochs)
    parts = [
        *_frame(left, f"{history.metric} on the {history.validated_on}", "epoch"),
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/>',
        _text(left, bottom + 16, "0", "middle"),
        _text(right, bottom + 16, str(last), "middle"),
    ]
    for value, color, name in ((history.start, BEFORE, "before"), (history.best, AFTER, "after")):
        parts += [
            f'<line x1="{left}" y1="{y(value):.1f}" x2="{right}" y2="{y(value):.1f}" stroke="{color}" '
            'stroke-width="2" stroke-dasharray="6 4"/>',
            _text(left - 6, y(value) + 4, f"{value:.5g}", "end"),
            _text(right + 8, y(value) + 4, name, "start"),
        ]
    return _svg(right + MARGIN + 30, "learning curve", parts)


def reliability_diagram(calibration: Calibration) -> str:
    """Observed frequency by predicted probability, before and after fit; a calibrated model is on the diagonal.

    The area of a point is the part of the validation rows in its bin.
    """
    low, high = MARGIN, MARGIN + SIDE
    upright = _text(14, low + SIDE / 2, "observed frequency", "middle")
    parts = [
        *_frame(low, "Calibration on the validation rows", "predicted probability"),
        f'<line x1="{low}" y1="{high}" x2="{high}" y2="{low}" stroke="#808080" stroke-dasharray="4 4"/>',
        *_curve(calibration.before, BEFORE),
        *_curve(calibration.after, AFTER),
        f'<g transform="rotate(-90 14 {low + SIDE / 2})">{upright}</g>',
        *(_text(low + SIDE * tick, high + 16, f"{tick:g}", "middle") for tick in (0, 0.5, 1)),
        *(_text(low - 6, high - SIDE * tick + 4, f"{tick:g}", "end") for tick in (0, 0.5, 1)),
    ]
    for line, (name, color) in enumerate((("before", BEFORE), ("after", AFTER))):
        parts.append(f'<circle cx="{high + 16}" cy="{low + 10 + 20 * line}" r="5" fill="{color}"/>')
        parts.append(_text(high + 28, low + 14 + 20 * line, name, "start"))
    return _svg(high + MARGIN + 130, "reliability diagram", parts)


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


def _frame(left: float, title: str, x_label: str) -> list[str]:
    """The square that a figure is drawn in, its title and the name of its horizontal axis."""
    return [
        _text(left, MARGIN - 16, title, "start"),
        f'<rect x="{left}" y="{MARGIN}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#808080" '
        'stroke-opacity=".4"/>',
        _text(left + SIDE / 2, MARGIN + SIDE + 32, x_label, "middle"),
    ]


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>'


def _svg(width: float, label: str, parts: list[str]) -> str:
    height = SIDE + 2 * MARGIN
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" fill="currentColor" '
        f'font-size="12" aria-label="{label}">{"".join(parts)}</svg>'
    )
