"""``python -m benchmarks.paper``: run tables of the paper, go on where an earlier run stopped, print, report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.command import command
from benchmarks.paper.cells import TRAINED_ON, VARIANTS, Limits, Results, key
from benchmarks.paper.jobs import run
from benchmarks.paper.report import write_report
from benchmarks.paper.tables import TABLES, aligned
from windtunnel.errors import BadInput

app = command()


@app.callback()
def main(
    table: Annotated[
        list[str] | None, typer.Option(help="5.3, 5.4, 5.5, 5.6, half or more rows; several may be given.")
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option(help="NAME=PATH: criteo, avazu, flight, clicklog=ROWS, or a name in a folder.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Separated by commas.")] = "0,1,2",
    pipe: Annotated[list[int] | None, typer.Option(help="Only these pipelines, 1 to 3; several may be given.")] = None,
    pre: Annotated[
        list[int] | None, typer.Option(help="Only these preprocessings, 1 to 3; several may be given.")
    ] = None,
    variant: Annotated[
        list[str] | None, typer.Option(help=f"Only these of {', '.join(VARIANTS)}; several may be given.")
    ] = None,
    trained_on: Annotated[
        list[str] | None, typer.Option(help=f"Only these of {', '.join(TRAINED_ON)}; several may be given.")
    ] = None,
    rows: Annotated[int | None, typer.Option(help="Take so many rows of each set at random.")] = None,
    max_steps: Annotated[int | None, typer.Option(help="The most optimizer steps; the recipe's are 20,000.")] = None,
    learning_rate: Annotated[
        list[float] | None,
        typer.Option(help="The paper's are 1e-5 on Criteo, else 1e-4; of several the validation rows choose one."),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows of a step; else a 256th of the training rows.")] = None,
    output: Annotated[Path, typer.Option(help="Folder of results.jsonl.")] = Path("runs/paper"),
    jobs: Annotated[int, typer.Option(min=1, help="Pipelines to fit at once, each in a process of its own.")] = 1,
    report: Annotated[Path | None, typer.Option(help="Markdown file to write the section with all results to.")] = None,
) -> None:
    """Run the paper's tables on the given data; finished cells of an earlier run are not run again."""
    if not table and report is None:
        raise BadInput(f"nothing to do; give --table {'|'.join(TABLES)} with --data NAME=PATH, or --report FILE")
    if wrong := [name for name in table or [] if name not in TABLES]:
        raise BadInput(f"--table {wrong[0]}: there are {', '.join(TABLES)}")
    if table and not data:
        raise BadInput("no --data; give NAME=PATH, such as criteo=train.txt or clicklog=1000000")
    limits = Limits(rows, max_steps, tuple(learning_rate or ()), batch_size)
    results = Results(output / "results.jsonl")
    results.repair()
    whole = [(name, TABLES[name].cells(spec, _seeds(seeds))) for name in table or [] for spec in data or []]
    allowed = {"pipe": pipe, "pre": pre, "variant": variant, "trained_on": trained_on}
    wanted = [
        (name, [cell for cell in cells if all(getattr(cell, of) in only for of, only in allowed.items() if only)])
        for name, cells in whole
    ]
    run(list(dict.fromkeys(cell for _, cells in wanted for cell in cells)), limits, results, jobs)
    finished = results.finished()
    for name in dict.fromkeys(table or []):
        shown = [finished[key(cell.settings(limits))] for of, cells in wanted if of == name for cell in cells]
        typer.echo(f"\nTable {name}: {TABLES[name].title}. Test AUC, mean ± standard error over seeds {seeds}.")
        typer.echo(told(shown, limits))
        typer.echo(aligned(TABLES[name].in_paper_form(data or [], _seeds(seeds), limits, finished)))
    if report is not None:
        write_report(report, list(finished.values()))
        typer.echo(f"wrote {report}")


def _seeds(seeds: str) -> list[int]:
    parts = seeds.replace(",", " ").split()
    if not parts or not all(part.isdecimal() for part in parts):
        raise BadInput(f"--seeds {seeds!r}; give whole numbers, such as 0,1,2")
    return [int(part) for part in dict.fromkeys(parts)]


def told(shown: Sequence[dict[str, object]], limits: Limits) -> str:
    """What the training was held to, and how often that ended it."""
    trained = [each for each in shown if each["settings"]["variant"] not in ("source", "residual")]  # type: ignore[index]
    recipes = [each["settings"]["recipe"] for each in trained]  # type: ignore[index]
    if not trained:
        return "No joint training."
    rates = sorted({rate for recipe in recipes for rate in recipe["learning_rate"]})
    capped = sum(bool(each["capped"]) for each in trained)
    return (
        f'recipe="paper", rate {", ".join(f"{rate:g}" for rate in rates)}, '
        f"{'all' if limits.rows is None else f'{limits.rows:,}'} rows, at most {recipes[0]['max_steps']:,} steps where "
        f"the paper trains until convergence: the cap ended {capped} of {len(trained)} trainings."
    )


if __name__ == "__main__":
    app()
