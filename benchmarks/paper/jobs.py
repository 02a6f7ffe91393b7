"""Cells that are measured one after the other, or several at once; other processes do not find what is in __main__."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context

import typer

from benchmarks.paper.cells import Cell, Limits, Results, groups, key, measure


def run(cells: Sequence[Cell], limits: Limits, results: Results, jobs: int = 1) -> None:
    """Measure the cells that have no result yet, and write each result as soon as it is there."""
    finished = results.finished()
    left = groups(cell for cell in cells if key(cell.settings(limits)) not in finished)
    typer.echo(f"{sum(map(len, left))} of {len(cells)} cells to run")
    threads = None if jobs == 1 else max(1, (os.cpu_count() or 1) // jobs)
    work = partial(measured, limits=limits, results=results, threads=threads)
    if jobs == 1:
        for group in left:
            work(group)
        return
    # The pool starts all of its processes at once.
    with ProcessPoolExecutor(max(1, min(jobs, len(left))), get_context("spawn")) as pool:
        for done in as_completed([pool.submit(work, group) for group in left]):
            done.result()


def measured(cells: list[Cell], limits: Limits, results: Results, threads: int | None) -> None:
    """Measure cells of one source and write them down."""
    for cell, result in zip(cells, measure(cells, limits, threads), strict=True):
        results.add(result)
        share = "" if cell.share == 1 else f", {cell.share:.0%} of the rows"
        share += "" if cell.trained_on == "all" else f", {cell.trained_on} half"
        name = result["settings"]["data"]
        typer.echo(
            f"{name} Pre{cell.pre} Pipe{cell.pipe} seed {cell.seed}{share}: {cell.variant} {result['auc']:.4f} "
            f"({result['seconds']:.0f} s)"
        )
