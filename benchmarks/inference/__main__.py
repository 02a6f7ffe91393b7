"""``python -m benchmarks.inference``: time compiled models, their sources and, with an option, other engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.command import command
from benchmarks.inference.cells import CLOCKS, SECONDS, measure
from benchmarks.inference.models import GROUPS, MODELS
from benchmarks.inference.peers import PEERS
from benchmarks.inference.quick import Cells, quick_cells
from benchmarks.inference.report import counts
from benchmarks.stored import add
from windtunnel.errors import BadInput, nearest

BATCHES = (1, 10, 100, 1_000, 10_000, 100_000)
QUICK_SECONDS = 0.4
"""About how long the turns of a cell take with ``--quick``."""
ENGINES = ("native", "torch", "torchscript")

app = command()


@app.callback()
def main(
    group: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(GROUPS)}; by default all.")] = None,
    model: Annotated[list[str] | None, typer.Option(help=f"Of {'; '.join(MODELS)}; by default all of a group.")] = None,
    batch: Annotated[list[int] | None, typer.Option(min=1, help=f"Rows; by default {BATCHES}.")] = None,
    threads: Annotated[list[int] | None, typer.Option(min=1, help="By default 1 and 2.")] = None,
    engine: Annotated[
        list[str] | None,
        typer.Option(
            help="BACKEND, BACKEND/STRATEGY (not native), and either with /float32, where BACKEND is native, torch, "
            "torchscript, exported, onnx, cudagraphs or aoti, which takes up to a minute to compile; "
            f"by default {', '.join(ENGINES)}."
        ),
    ] = None,
    peers_python: Annotated[Path | None, typer.Option(help="A Python that has other engines installed.")] = None,
    peer: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(PEERS)}; by default all.")] = None,
    clock: Annotated[
        str, typer.Option(help=f"{' or '.join(CLOCKS)}: processor time, for machines that do other work.")
    ] = "wall",
    device: Annotated[str, typer.Option(help="Where ours run: cpu or cuda, for which wall is the clock.")] = "cpu",
    quick: Annotated[bool, typer.Option("--quick", help="Tree ensembles, native engine, ten minutes.")] = False,
    kept: Annotated[Path | None, typer.Option(help="A folder that keeps fitted and compiled models.")] = None,
    output: Annotated[Path | None, typer.Option(help="A file of JSON lines, for the report.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print such lines.")] = False,
) -> None:
    """Medians of calls that take turns, as ratios to the source's.

    Groups of models: "trees" are ensembles of LightGBM, XGBoost, CatBoost and scikit-learn over 28 numbers; "real"
    boosted trees on the data sets of the folder WINDTUNNEL_DATA; "operators" the 13 of Hummingbird's table 11, one at a
    time, over 20 numbers; "pipelines" whole ones over DataFrames with strings.
    """
    for what, given, known in (
        ("group", group, GROUPS),
        ("model", model, MODELS),
        ("peer", peer, PEERS),
        ("clock", [clock], CLOCKS),
    ):
        for name in given or ():
            if name not in known:
                raise BadInput(f"{what} {name!r} is not known; {nearest(name, known)}")
    if quick:
        chosen = [
            cells
            for cells in quick_cells()
            if cells.model in (model or [cells.model]) and cells.threads in (threads or [cells.threads])
        ]
    else:
        wanted = model or [name for one in group or GROUPS for name in GROUPS[one]]
        chosen = [
            Cells(name, count, tuple(batch or BATCHES), tuple(PEERS)) for name in wanted for count in threads or (1, 2)
        ]
    engines, seconds = engine or (("native",) if quick else ENGINES), QUICK_SECONDS if quick else SECONDS
    timed = []
    for cells in chosen:
        peers = [name for name in cells.peers if name in (peer or cells.peers)]
        others = (peers_python, peers, seconds, clock, device, kept)
        for cell in measure(cells.model, batch or cells.batches, cells.threads, engines, *others):
            timed.append(cell)
            print(json.dumps(cell) if as_json else _line(cell), flush=True)
            if output is not None:
                add(output, cell)
    if not as_json:
        print(counts(timed))


def _line(cell: dict[str, object]) -> str:
    shown = [f"{cell[name]:.3g}" if cell[name] is not None else "-" for name in
             ("median_s", "ratio_to_source", "ratio_to_best_peer")]  # fmt: skip
    where = f"{cell['model']:24} {cell['batch']:>7,} x{cell['threads']} {cell['engine']:40}"
    return f"{where} {shown[0]:>9} s {shown[1]:>7} {shown[2]:>7}  {cell['note']}"


if __name__ == "__main__":
    app()
