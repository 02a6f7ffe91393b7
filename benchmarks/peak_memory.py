"""``python -m benchmarks.peak_memory``: the most memory that scoring takes, for each backend and file.

Each engine, a backend of ``windtunnel.compile`` or ``FORMAT file`` for what ``net.export`` writes and
``windtunnel.export.serving`` reads, runs in a process of its own. ``peak_mb`` is the most that the process holds
while it scores above what it held before, with all code loaded by calls of fewer rows and what these have freed given
back, plus the rows themselves; the outputs are in it. ``allowed_mb`` is what was asked for, 1.5 times rows and outputs
and 300 MB more. Sizes are in MiB. It needs Linux, with its own C library.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer

import windtunnel
from benchmarks.command import command
from benchmarks.inference.models import MODELS
from benchmarks.train_step import resident
from windtunnel.compiler.backends import BACKENDS
from windtunnel.errors import BadInput, nearest
from windtunnel.export import serving

MIB = 2**20
SUFFIX = {"torchscript": ".ts", "exported": ".pt2", "aoti": ".pt2", "onnx": ".onnx"}
FILES = {f"{format} file": format for format in SUFFIX}
ENGINES = (*(one for one in BACKENDS if one != "cudagraphs"), *FILES)
"""Those of a CPU."""
MODEL = "lightgbm 100 x 64"
WARM = 5000
"""Rows of the first calls; enough that all threads are woken."""
app = command()


@app.callback()
def main(
    model: Annotated[str, typer.Option(help=f"Of {'; '.join(MODELS)}.")] = MODEL,
    engine: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(ENGINES)}; by default all.")] = None,
    rows: Annotated[int, typer.Option(min=1)] = 100_000,
    threads: Annotated[int, typer.Option(min=1)] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON line for each engine.")] = False,
    here: Annotated[bool, typer.Option(help="In this process.", hidden=True)] = False,
) -> None:
    """Peak memory of scoring raw rows."""
    for what, given, known in (("model", [model], MODELS), ("engine", engine or (), ENGINES)):
        for name in given:
            if name not in known:
                raise BadInput(f"{what} {name!r} is not known; {nearest(name, known)}")
    for one in engine or ENGINES:
        line = measured(model, one, rows, threads) if here else _elsewhere(model, one, rows, threads)
        if as_json or here:
            typer.echo(json.dumps(line))
        else:
            typer.echo(f"{one:18} {line['peak_mb']:6.0f} of {line['allowed_mb']:.0f} MiB")


def _elsewhere(model: str, engine: str, rows: int, threads: int) -> dict[str, Any]:
    options = ["--model", model, "--engine", engine, "--rows", str(rows), "--threads", str(threads), "--here"]
    run = [sys.executable, "-W", "ignore", "-m", "benchmarks.peak_memory", *options]
    done = subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def measured(model: str, engine: str, rows: int, threads: int) -> dict[str, Any]:
    """What one call takes, in this process."""
    torch.set_num_threads(threads)
    score = scoring(model, engine)
    for _ in range(3):  # TorchScript compiles in the second
        score(given(model, engine, WARM))
    X = given(model, engine, rows)
    ctypes.CDLL(None).malloc_trim(0)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts anew
    outputs = score(X)
    rows_mb, outputs_mb = megabytes(X), megabytes(outputs)
    return {
        "model": model,
        "engine": engine,
        "rows": rows,
        "threads": threads,
        "rows_mb": rows_mb,
        "outputs_mb": outputs_mb,
        "peak_mb": resident("VmHWM") - before + rows_mb,
        "allowed_mb": 1.5 * (rows_mb + outputs_mb) + 300,
    }


def scoring(model: str, engine: str) -> Callable[[Any], Any]:
    """The outputs of an engine for the method of the model."""
    source, method = MODELS[model].fitted(), MODELS[model].method
    if engine not in FILES:
        return getattr(windtunnel.compile(source, backend=engine), method)  # type: ignore[no-any-return]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"model{SUFFIX[FILES[engine]]}"
        windtunnel.compile(source).export(path, format=FILES[engine])
        return getattr(serving.load(path, trusted=True), method)  # type: ignore[no-any-return]


def given(model: str, engine: str, count: int) -> Any:
    """Rows as an engine takes them: an array's columns go into files one by one."""
    rows = MODELS[model].rows(count, 7)
    if engine not in FILES or isinstance(rows, pd.DataFrame):
        return rows
    return {str(column): np.ascontiguousarray(rows[:, column]) for column in range(rows.shape[1])}


def megabytes(held: Any) -> float:
    """The size of rows or outputs in MiB."""
    if isinstance(held, pd.DataFrame):
        return float(held.memory_usage(deep=True).sum()) / MIB
    return sum(np.asarray(one).nbytes for one in (held.values() if isinstance(held, dict) else [held])) / MIB


if __name__ == "__main__":
    app()
