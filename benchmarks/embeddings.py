"""``python -m benchmarks.embeddings``: memory and time of training a large table of categories.

A table behind which a linear layer stands is fine-tuned by ``fit``, moving average, best epoch and report's start
included, in a process of its own. ``peak_mb`` is the most that the process holds above what it held with its code
loaded and no table; ``state_mb`` what Adam keeps of the rows that were met; ``over_table`` their difference as a
multiple of the table. ``--dense`` copies tables of any size, as small ones are.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from benchmarks.command import command
from benchmarks.train_step import resident
from windtunnel.api.translation import Translation
from windtunnel.encode import Batch, CategoryColumn, RowEncoder, Vocabulary
from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.tables import large_tables
from windtunnel.modules.tables.category_table import CategoryTable
from windtunnel.program.head import Head
from windtunnel.program.program import IDS, Program, ProgramStep, Take
from windtunnel.program.records.origin import Origin
from windtunnel.trainers.data.encoded_rows import EncodedRows

MIB = 2**20
app = command()


@app.callback()
def main(
    rows: Annotated[int, typer.Option(min=10, help="Rows of the table.")] = 10_000_000,
    width: Annotated[int, typer.Option(min=1)] = 32,
    samples: Annotated[int, typer.Option(min=10, help="Rows of data, each with a category at random.")] = 200_000,
    batch: Annotated[int, typer.Option(min=1)] = 4096,
    epochs: Annotated[int, typer.Option(min=1)] = 2,
    threads: Annotated[int, typer.Option(min=1)] = 1,
    checkpoints: Annotated[bool, typer.Option(help="Write a checkpoint per epoch too.")] = False,
    dense: Annotated[bool, typer.Option(help="Train the table as a small one.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON.")] = False,
    here: Annotated[bool, typer.Option(help="In this process.", hidden=True)] = False,
) -> None:
    """Peak memory of fine-tuning a translation with a large table."""
    if not here:
        command = [sys.executable, "-m", "benchmarks.embeddings", *sys.argv[1:], "--here"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])
        result = json.loads(done.stdout)
    else:
        torch.set_num_threads(threads)
        large_tables.LARGE_TABLE = rows * width + 1 if dense else 1
        trained(100, 2, 200, 50, 1, checkpoints=checkpoints)  # loads code
        result = trained(rows, width, samples, batch, epochs, checkpoints=checkpoints) | {"dense": dense}
    if as_json or here:
        typer.echo(json.dumps(result))
    else:
        for name, value in result.items():
            typer.echo(f"{name:14} {value}")


def trained(rows: int, width: int, samples: int, batch: int, epochs: int, *, checkpoints: bool) -> dict[str, Any]:
    """What a fit takes."""
    before = resident("VmRSS")
    net, train, valid = translation(rows, width), data(rows, samples, batch, 0), data(rows, samples // 10, batch, 1)
    options: dict[str, Any] = {"recipe": "joint", "epochs": epochs, "patience": None, "metric": "rmse"}
    with tempfile.TemporaryDirectory() as folder:
        options |= {"checkpoint_dir": folder} if checkpoints else {}
        started = time.perf_counter()
        net.fit(train, valid, progress=False, accelerator="cpu", **options)
        seconds = time.perf_counter() - started
    met = len(train.rows.ids.unique())
    table, state = rows * width * 4 / MIB, 2 * met * width * 4 / MIB
    peak = resident("VmHWM") - before
    return {
        "rows": rows,
        "width": width,
        "samples": samples,
        "batch": batch,
        "epochs": epochs,
        "met": met,
        "checkpoints": checkpoints,
        "table_mb": table,
        "state_mb": state,
        "peak_mb": peak,
        "over_table": (peak - state) / table,
        "fit_s": seconds,
        "step_s": seconds / (epochs * len(train)),
    }


def translation(rows: int, width: int) -> Translation:
    """A table of so many categories and a linear regression."""
    table = CategoryTable(torch.zeros(1, 1).expand(rows, width))  # which makes the one copy that there is
    table.rows.data.normal_(generator=torch.Generator().manual_seed(0))
    steps = [
        ProgramStep(table, [Take(IDS, [0])], "encode"),
        ProgramStep(Linear(torch.ones(1, width), torch.zeros(1)), [Take(2, list(range(width)))], "regress"),
    ]
    encoder = RowEncoder(None, 1, categories=[CategoryColumn(0, Vocabulary([]))])
    head = Head("regression", "identity", "squared")
    return Translation(Program(steps), encoder, head, [Origin("encode", ""), Origin("regress", "")])


def data(rows: int, samples: int, batch: int, seed: int) -> EncodedRows:
    """Encoded rows of data: a category, and a number that follows from it."""
    ids = torch.randint(0, rows, (samples, 1), generator=torch.Generator().manual_seed(seed))
    return EncodedRows(Batch(torch.zeros(samples, 0), ids), (ids[:, 0] % 7).float(), batch_size=batch)


if __name__ == "__main__":
    app()
