"""``python -m benchmarks.paper``: run tables of the paper, go on where an earlier run stopped, print, report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.command import command, parse_seeds
from benchmarks.paper.cells import TRAINED_ON, VARIANTS, Cell, Limits, groups, measure
from benchmarks.paper.report import write_report
from benchmarks.paper.tables import TABLES
from benchmarks.report import markdown
from benchmarks.stored import Results, key
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
    mixed: Annotated[bool, typer.Option("--mixed", help="Deal the rows to the parts at random.")] = False,
    output: Annotated[Path, typer.Option(help="Folder of results.jsonl.")] = Path("runs/paper"),
    report: Annotated[Path | None, typer.Option(help="Markdown file to write the section with all results to.")] = None,
) -> None:
    """Run the paper's tables on the given data; finished cells of an earlier run are not run again."""
    if not table and report is None:
        raise BadInput(f"nothing to do; give --table {'|'.join(TABLES)} with --data NAME=PATH, or --report FILE")
    if wrong := [name for name in table or [] if name not in TABLES]:
        raise BadInput(f"--table {wrong[0]}: there are {', '.join(TABLES)}")
    if table and not data:
        raise BadInput("no --data; give NAME=PATH, such as criteo=train.txt or clicklog=1000000")
    limits, numbers = Limits(rows, max_steps, tuple(learning_rate or ()), batch_size, mixed), parse_seeds(seeds)
    results = Results(output / "results.jsonl")
    results.repair()
    filters = {"pipe": pipe, "pre": pre, "variant": variant, "trained_on": trained_on}
    cells = {
        name: [cell for spec in data or [] for cell in TABLES[name].cells(spec, numbers) if _passes(cell, filters)]
        for name in table or []
    }
    run(list(dict.fromkeys(cell for of_table in cells.values() for cell in of_table)), limits, results)
    finished = results.finished()
    for name, of_table in cells.items():
        typer.echo(f"\nTable {name}: {TABLES[name].title}. Test AUC, mean ± standard error over seeds {seeds}.")
        typer.echo(describe([finished[key(cell.settings(limits))] for cell in of_table], limits))
        typer.echo(markdown(TABLES[name].in_paper_form(data or [], numbers, limits, finished)))
    if report is not None:
        write_report(report, list(finished.values()))
        typer.echo(f"wrote {report}")


def _passes(cell: Cell, filters: dict[str, Any]) -> bool:
    return all(getattr(cell, field) in values for field, values in filters.items() if values)


def run(cells: Sequence[Cell], limits: Limits, results: Results) -> None:
    """Measure the cells that have no result yet, and write each result as soon as it is there."""
    finished = results.finished()
    left = [cell for cell in cells if key(cell.settings(limits)) not in finished]
    typer.echo(f"{len(left)} of {len(cells)} cells to run")
    for group in groups(left):
        for cell, result in zip(group, measure(group, limits), strict=True):
            results.add(result)
            share = "" if cell.share == 1 else f", {cell.share:.0%} of the rows"
            share += "" if cell.trained_on == "all" else f", {cell.trained_on} half"
            typer.echo(
                f"{result['settings']['data']} Pre{cell.pre} Pipe{cell.pipe} seed {cell.seed}{share}: "
                f"{cell.variant} {result['auc']:.4f} ({result['seconds']:.0f} s)"
            )


def describe(results: Sequence[dict[str, Any]], limits: Limits) -> str:
    """The limits of joint training, and how often they ended it."""
    trained = [each for each in results if each["settings"]["variant"] not in ("source", "residual")]
    if not trained:
        return "No joint training."
    recipes = [each["settings"]["recipe"] for each in trained]
    rates = sorted({rate for recipe in recipes for rate in recipe["learning_rate"]})
    capped = sum(each["capped"] for each in trained)
    return (
        f'recipe="paper", rate {", ".join(f"{rate:g}" for rate in rates)}, '
        f"{'all' if limits.rows is None else f'{limits.rows:,}'} rows, at most {recipes[0]['max_steps']:,} steps where "
        f"the paper trains until convergence: the cap ended {capped} of {len(trained)} trainings."
    )


if __name__ == "__main__":
    app()
