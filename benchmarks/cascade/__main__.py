"""What cascades, caches and top-K filters save, on pipelines like those of Willump; tables for docs/cascades.md.

python -m benchmarks.cascade [--name product]
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import typer
from sklearn.metrics import accuracy_score

import windtunnel
from benchmarks.cascade.workloads import WORKLOADS, Workload
from benchmarks.command import command
from windtunnel.serving.cascade.threshold import NEVER

app = command()
WAIT = 0.001
"""Seconds that a request to a remote table takes."""
QUERIES = 300
UNLIMITED = 10**6


def seconds(compute: Callable[[], Any], repeats: int = 3) -> float:
    """The least processor time of a few runs, which other work on the machine changes little."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        compute()
        times.append(time.process_time() - start)
    return min(times)


def made(workload: Workload, **options: Any) -> windtunnel.Cascade:
    """The cascade of a workload; a look-up costs its wait."""
    cost = dict.fromkeys(workload.tables, WAIT)
    return windtunnel.cascade(workload.pipeline, workload.train, workload.valid, cost=cost, **options)


def without_small_model(cascade: windtunnel.Cascade) -> windtunnel.Cascade:
    """The same cascade, whose full model predicts all rows."""
    assert cascade.threshold is not None
    return replace(cascade, threshold=replace(cascade.threshold, confidence=NEVER))


def throughput(workload: Workload, cascade: windtunnel.Cascade) -> str:
    """A row of the first table: times of a batch, and accuracy on the test rows."""
    rows, target = workload.test
    net, method = windtunnel.compile(workload.pipeline), "predict_proba" if workload.classifies else "predict"
    source = seconds(lambda: getattr(workload.pipeline, method)(rows))
    cells = [f"{len(rows) / source:,.0f}", f"{source / seconds(lambda: getattr(net, method)(rows)):.2f}"]
    whole = without_small_model(cascade) if workload.classifies else cascade
    full = seconds(lambda: getattr(whole, method)(rows))
    cells.append(f"{source / full:.2f}")
    if not workload.classifies:
        return row(workload.name, *cells, "", "", "")
    assert cascade.threshold is not None
    early = cascade.confident(cascade.small.predict_proba(rows)).mean()
    change = (cascade.predict(rows) == target) * 1.0 - (workload.pipeline.predict(rows) == target)
    cells += [f"{full / seconds(lambda: cascade.predict_proba(rows)):.2f}", f"{early:.0%}"]
    error = change.std(ddof=1) / len(rows) ** 0.5
    accuracy = accuracy_score(target, workload.pipeline.predict(rows))
    return row(workload.name, *cells, f"{accuracy:.4f}, {change.mean():+.4f} ± {error:.4f}")


def remote(workload: Workload, cascade: windtunnel.Cascade) -> list[str]:
    """Rows of the second table: keys asked for and median latency of single rows, with a wait per request."""
    queries = [workload.test[0].iloc[[at]] for at in range(len(workload.test[0]))][-3 * QUERIES :]
    ways = {
        "source pipeline": workload.pipeline.predict_proba,
        "full model": without_small_model(cascade).predict_proba,
        "caches": without_small_model(replace(cascade, cache=dict.fromkeys(workload.tables, UNLIMITED))).predict_proba,
        "cascade": cascade.predict_proba,
        "cascade, caches": replace(cascade, cache=dict.fromkeys(workload.tables, UNLIMITED)).predict_proba,
    }
    lines, all_keys = [], 0
    for name, predict in ways.items():
        wait(workload, 0.0)
        for query in queries[:-QUERIES]:  # fills the caches
            predict(query)
        wait(workload, WAIT)
        before, times = keys(workload), []
        for query in queries[-QUERIES:]:
            start = time.perf_counter()
            predict(query)
            times.append(time.perf_counter() - start)
        asked = keys(workload) - before
        all_keys = all_keys or asked
        lines.append(
            row(
                workload.name,
                name,
                f"{asked / all_keys - 1:+.1%}",
                *(f"{1e3 * t:.2f}" for t in (np.mean(times), np.median(times))),
            )
        )
    wait(workload, 0.0)
    return lines


def wait(workload: Workload, seconds: float) -> None:
    """Let requests to all tables wait so long."""
    for store in workload.tables.values():
        store.seconds = seconds


def keys(workload: Workload) -> int:
    """How many keys were asked for so far."""
    return sum(store.keys for store in workload.tables.values())


def best(workload: Workload, cascade: windtunnel.Cascade) -> str:
    """A row of the third table: the 100 best of the test rows."""
    rows = workload.test[0]
    whole = without_small_model(cascade) if workload.classifies else cascade
    full = seconds(lambda: whole.predict_proba(rows) if workload.classifies else whole.predict(rows))
    filtered = seconds(lambda: cascade.top_k(rows, 100, ck=5))
    quality = cascade.top_k_quality(rows, 100, ck=5)
    values = f"{quality.average_value:.4f}, {quality.full_average_value:.4f}"
    speeds = f"{len(rows) / full:,.0f}", f"{len(rows) / filtered:,.0f}"
    return row(
        workload.name, *speeds, f"{full / filtered:.2f}", f"{quality.precision:.2f}",
        f"{quality.mean_average_precision:.2f}", values,
    )  # fmt: skip


def row(*cells: str) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"


def titles(*names: str) -> str:
    """The first two lines of a table."""
    return "\n".join([row(*names), row(*("---" for _ in names))])


@app.callback()
def main(name: Annotated[list[str] | None, typer.Option(help="Only these workloads.")] = None) -> None:
    """Print three tables: throughput of batches, remote look-ups of single rows, and the best 100 rows."""
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    batches, lookups, top = [], [], []
    for workload in (WORKLOADS[each]() for each in name or WORKLOADS):
        start = time.process_time()
        cascade = made(workload)
        typer.echo(f"{workload.name}: optimized in {time.process_time() - start:.1f} s\n{cascade.report()}\n", err=True)
        batches.append(throughput(workload, cascade))
        top.append(best(workload, cascade))
        if workload.tables and workload.classifies:
            lookups += remote(workload, cascade)
    typer.echo(
        titles(
            "pipeline", "source, rows/s", "`compile`: times as fast", "full model of the cascade",
            "cascade: times as fast as its full model", "predicted early", "accuracy, change by the cascade",
        )
    )  # fmt: skip
    typer.echo("\n".join(batches))
    if lookups:
        typer.echo("\n" + titles("pipeline", "way", "keys asked for", "mean latency, ms", "median"))
        typer.echo("\n".join(lookups))
    typer.echo(
        "\n"
        + titles("pipeline", "full, rows/s", "top_k, rows/s", "times as fast", "precision", "MAP", "mean score, true")
    )
    typer.echo("\n".join(top))


if __name__ == "__main__":
    app()
