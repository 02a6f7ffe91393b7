"""``python -m benchmarks.inference.report FILE``: what ``benchmarks.inference --output FILE`` wrote, as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.command import command

WITHIN = 1.2
"""How much slower than the best engine still counts as near it."""

app = command()


@app.callback()
def main(file: Annotated[Path, typer.Argument(help="A JSON line per cell and engine.")]) -> None:
    """Print the table, and in how many cells we are the fastest."""
    cells = [json.loads(line) for line in file.read_text().splitlines()]
    print("\n".join(table(cells)), counts(cells), sep="\n\n")


def counts(lines: Iterable[dict[str, Any]]) -> str:
    """In how many cells one of our engines is the fastest of all, sources included, and in how many it is near."""
    ratios = [_to_best(cell) for cell in _cells(lines)]
    fastest, near = sum(ratio <= 1 for ratio in ratios), sum(ratio <= WITHIN for ratio in ratios)
    shares = [f"{count} ({100 * count / max(1, len(ratios)):.0f} %)" for count in (fastest, near)]
    return f"{len(ratios)} cells: fastest in {shares[0]}, within {WITHIN} times the best in {shares[1]}"


def table(lines: Iterable[dict[str, Any]]) -> list[str]:
    """A line of Markdown per model and number of threads, with a cell per number of rows.

    A cell has the time of our fastest engine and its ratios to the source and to the fastest other engine, which are
    medians of turns side by side.
    """
    cells = _cells(lines)
    batches = sorted({cell["source"]["batch"] for cell in cells})
    by_place = {_place(cell["source"]): _entry(cell) for cell in cells}
    models = dict.fromkeys((model, threads) for model, threads, _ in by_place)
    rows = [["model", "threads", *(f"{batch:,} rows" for batch in batches)], ["---", *["---:"] * (len(batches) + 1)]]
    for model, threads in models:
        entries = [by_place.get((model, threads, batch), "") for batch in batches]
        rows.append([model, str(threads), *entries])
    return [f"| {' | '.join(row)} |" for row in rows]


def _cells(lines: Iterable[dict[str, Any]]) -> list[dict[str, dict[str, Any]]]:
    """Of each model, batch and number of threads the engines that took it and are accurate, if ours are among them."""
    cells: dict[tuple[str, int, int], dict[str, dict[str, Any]]] = {}
    for line in lines:
        if line["median_s"] is not None and not line["note"]:
            cells.setdefault(_place(line), {})[line["engine"]] = line
    return [cell for cell in cells.values() if _ours(cell)]


def _place(line: dict[str, Any]) -> tuple[str, int, int]:
    return line["model"], line["threads"], line["batch"]


def _fastest(cell: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The line of our fastest engine."""
    return min(_ours(cell), key=lambda line: line["median_s"])


def _ours(cell: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for name, line in cell.items() if name.startswith("windtunnel ")]


def _to_best(cell: dict[str, dict[str, Any]]) -> float:
    """The ratio of our fastest engine to the fastest other one, the source included, of turns side by side."""
    ours = _fastest(cell)
    return max(ours["ratio_to_source"], ours["ratio_to_best_peer"] or 0.0)


def _entry(cell: dict[str, dict[str, Any]]) -> str:
    ours = _fastest(cell)
    microseconds = 1e6 * ours["median_s"]
    time = f"{microseconds:.3g} us" if microseconds < 1000 else f"{microseconds / 1000:.3g} ms"
    to_best = _to_best(cell)
    shown = f"{to_best:.2f}" if to_best <= 1 else f"**{to_best:.2f}**"
    return f"{time}; {ours['ratio_to_source']:.2g}; {shown}"


if __name__ == "__main__":
    app()
