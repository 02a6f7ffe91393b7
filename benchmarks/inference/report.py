"""``python -m benchmarks.inference.report FILE``: what ``benchmarks.inference --output FILE`` wrote, as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.inference.peers import PEERS

WITHIN = 1.2
"""How much slower than the best engine still counts as near it."""


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
    """A line of Markdown per cell: microseconds of the source, and ratios to it; the fastest is bold."""
    cells = _cells(lines)
    engines = [name for name in (*_ours(cells), *PEERS) if any(name in cell for cell in cells)]
    rows = [["model", "rows", "threads", "source, us", *(name.removeprefix("windtunnel ") for name in engines)]]
    rows.append(["---", *["---:"] * (len(rows[0]) - 1)])
    rows += [_line(cell, engines) for cell in cells]
    return [f"| {' | '.join(row)} |" for row in rows]


def _cells(lines: Iterable[dict[str, Any]]) -> list[dict[str, dict[str, Any]]]:
    """Of each model, batch and number of threads the engines that took it and are accurate."""
    cells: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for line in lines:
        if line["median_s"] is not None and not line["note"]:
            cells.setdefault((line["model"], line["threads"], line["batch"]), {})[line["engine"]] = line
    return list(cells.values())


def _ours(cells: Sequence[dict[str, dict[str, Any]]]) -> list[str]:
    return sorted({name for cell in cells for name in cell if name.startswith("windtunnel ")})


def _to_best(cell: dict[str, dict[str, Any]]) -> float:
    """The time of our fastest engine by that of the fastest other one."""
    times = {name: line["median_s"] for name, line in cell.items()}
    ours = [seconds for name, seconds in times.items() if name.startswith("windtunnel ")]
    others = [seconds for name, seconds in times.items() if not name.startswith("windtunnel ")]
    return min(ours) / min(others)


def _line(cell: dict[str, dict[str, Any]], engines: Sequence[str]) -> list[str]:
    source = cell["source"]
    best = min(cell, key=lambda name: cell[name]["median_s"])
    ratios = [f"{cell[name]['median_s'] / source['median_s']:.3f}" if name in cell else "–" for name in engines]
    shown = [f"**{ratio}**" if name == best else ratio for name, ratio in zip(engines, ratios, strict=True)]
    return [source["model"], f"{source['batch']:,}", str(source["threads"]), f"{1e6 * source['median_s']:,.4g}", *shown]


if __name__ == "__main__":
    typer.run(main)
