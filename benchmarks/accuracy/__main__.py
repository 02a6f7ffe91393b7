"""``python -m benchmarks.accuracy``: measure what is not measured yet, go on where it was stopped, print, report."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.accuracy.builtin import BUILT_IN, load_built_in
from benchmarks.accuracy.cells import MODELS, Cell, Settings, groups, measure, named
from benchmarks.accuracy.neural import NEURAL, find
from benchmarks.accuracy.report import write_report
from benchmarks.accuracy.table import Scores, grids
from benchmarks.accuracy.task import Task, prepare
from benchmarks.command import command, parse_seeds
from benchmarks.sets import load, names_in
from benchmarks.stored import Results, key
from windtunnel.cli import Commands
from windtunnel.errors import BadInput, nearest


class Seeded(Commands):
    """``--seeds 0 1 2`` as well as ``--seeds 0,1,2``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Join the numbers that follow."""
        joined = list[str]()
        for arg in args:
            if arg.isdecimal() and len(joined) > 1 and joined[-2] == "--seeds":
                joined[-1] += f",{arg}"
            else:
                joined.append(arg)
        return super().parse_args(ctx, joined)


app = command(Seeded)


@app.callback()
def main(
    data: Annotated[Path | None, typer.Option(help="Folder whose datasets.py has NAMES and load(name).")] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", help=f"Of the folder, or {', '.join(BUILT_IN)}; by default all.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Such as catboost, strong, strong/default, or default for every source.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Whole numbers.")] = "0,1,2",
    output: Annotated[Path, typer.Option(help="Folder of results.jsonl.")] = Path("runs/accuracy"),
    paper_epochs: Annotated[int | None, typer.Option(min=1, help="The most epochs of recipe_paper.")] = None,
    pytabkit_python: Annotated[Path | None, typer.Option(help="A Python with pytabkit: realmlp and tabm.")] = None,
    pytabkit_epochs: Annotated[int | None, typer.Option(min=1, help="The most epochs of realmlp and tabm.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the lines instead of tables.")] = False,
    report: Annotated[Path | None, typer.Option(help="Markdown file to write the section with all results to.")] = None,
) -> None:
    """Compare translations with their sources and with what else there is.

    Finished cells are not run again. Without --data and --set nothing is run, and what is in --output is shown.
    """
    results = Results(output / "results.jsonl")
    results.repair()
    if data is None and not sets:
        shown = list(results.finished().values())
        if not shown:
            raise BadInput(
                f"nothing to do: no results in {output}; give --data FOLDER, or --set {next(iter(BUILT_IN))}"
            )
    else:
        names, numbers, models = _sets(data, sets), parse_seeds(seeds), named(model or MODELS)
        pytabkit = None if pytabkit_python is None else find(pytabkit_python, pytabkit_epochs)
        run = Settings(paper_epochs=paper_epochs, pytabkit=pytabkit)
        models = _runnable(models, run)
        cells = [Cell(name, one, seed) for name in names for seed in numbers for one in models]
        measured(cells, data, run, results)
        finished = results.finished()
        shown = [finished[key(cell.settings(run))] for cell in cells]
    if as_json:
        for line in shown:
            typer.echo(json.dumps(line))
    else:
        _print(shown)
    if report is not None:
        write_report(report, list(results.finished().values()))
        _say(f"wrote {report}")


def measured(cells: Sequence[Cell], data: Path | None, run: Settings, results: Results) -> None:
    """Measure the cells that have no result yet, and write each result as soon as it is there."""
    finished = results.finished()
    left = [cell for cell in cells if key(cell.settings(run)) not in finished]
    _say(f"{len(left)} of {len(cells)} cells to run")
    for name, of_set in groupby(left, key=lambda cell: cell.set):
        task = _task(name, data, run.most_rows)
        if task.note:
            _say(task.note)
        for group in groups(list(of_set)):
            for line in measure(task, group, run):
                results.add(line)
                settings = line["settings"]
                _say(
                    f"{settings['set']} seed {settings['seed']}: {settings['model']} {line['test']:.4f} "
                    f"({line['seconds']:.0f} s)"
                )


def _task(name: str, data: Path | None, most_rows: int) -> Task:
    return prepare(load_built_in(name) if name in BUILT_IN else load(f"{name}={data}"), most_rows)


def _sets(data: Path | None, wanted: Sequence[str] | None) -> list[str]:
    """The wanted names, or all of the folder and all that are built in."""
    names = list(BUILT_IN)
    if data is not None:
        names = [*names_in(data), *names]
    if twice := [name for name in BUILT_IN if names.count(name) > 1]:
        raise BadInput(f"{data} has sets {', '.join(twice)}, as are built in here; give them other names")
    for name in wanted or []:
        if name not in names:
            raise BadInput(
                f"--set {name}: {nearest(name, names)}" + ("; or give --data FOLDER" if data is None else "")
            )
    return list(dict.fromkeys(wanted or names))


def _runnable(models: Sequence[str], run: Settings) -> list[str]:
    """Those that this run has the libraries for; the others are told."""
    skipped = [name for name in models if name in NEURAL and run.pytabkit is None]
    if skipped:
        _say(f"skipped {', '.join(skipped)}: give --pytabkit-python, a Python that has pytabkit and pyarrow")
    return [name for name in models if name not in skipped]


def _print(shown: Sequence[dict[str, Any]]) -> None:
    """Tables as wide as they are: a file or a pipe has no width to keep to."""
    console = Console(width=None if sys.stdout.isatty() else 400)
    for grid in grids(Scores(shown)):
        console.print(f"\n{grid.title}")
        console.print(grid.rich())


def _say(text: str) -> None:
    """On stderr, so that stdout has nothing but results."""
    typer.echo(text, err=True)


if __name__ == "__main__":
    app()
