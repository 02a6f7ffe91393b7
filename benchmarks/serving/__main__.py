"""``python -m benchmarks.serving``: requests per second against latency, for ways to batch and for other servers.

Single-row requests arrive as a Poisson process. Each server gets growing loads until it falls behind. Clients and
server share the machine; use two idle cores at least.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from timeit import timeit
from typing import Annotated, Any

import typer

from benchmarks.command import command
from benchmarks.serving.client import Load
from benchmarks.serving.models import MODELS, Model
from benchmarks.serving.overload import Overload
from benchmarks.serving.processes import run_client, running
from benchmarks.stored import add

FIRST_RATE, LAST_RATE = 60.0, 40_000.0
BEHIND = 0.9
"""A server that completes less than this share of the offered load has reached its peak."""
WARM_UP = (100.0, 1.0)
MODES = {
    "trees": ("one by one", "request", "windtunnel serve"),
    "torch_trees": ("one by one", "request", "windtunnel serve"),
    "cascade": ("one by one", "request", "stage", "windtunnel serve"),
    "early": ("request", "stage"),
}
PEERS = ("litserve", "litserve batches", "mlserver")
app = command()


@dataclass(frozen=True)
class Result:
    """What one server did under all loads."""

    model: str
    server: str
    loads: list[Load]

    @property
    def peak(self) -> float:
        """The highest throughput, per second."""
        return max(load.throughput for load in self.loads)

    def within(self, milliseconds: float) -> float:
        """The highest throughput with at most that p99 and no failures, per second."""
        good = [load for load in self.loads if load.p99_ms <= milliseconds and not load.failed + load.rejected]
        return max((load.throughput for load in good), default=0.0)

    def half(self) -> Load:
        """The load that is nearest to half of the peak."""
        return min(self.loads, key=lambda load: abs(load.throughput - self.peak / 2))


@app.callback(invoke_without_command=True)
def main(
    quick: Annotated[bool, typer.Option(help="Two seconds per load instead of ten.")] = False,
    models: Annotated[str, typer.Option(help="Names, separated by commas.")] = ",".join(MODELS),
    peers: Annotated[Path | None, typer.Option(help="A Python with litserve, mlserver and windtunnel.")] = None,
    output: Annotated[Path | None, typer.Option(help="A file of JSON lines, for figures.")] = None,
    overload: Annotated[float, typer.Option(help="Only this: so many seconds at twice the peak.")] = 0.0,
) -> None:
    """Measure all servers and print a table."""
    seconds, growth = (2.0, 1.7) if quick else (10.0, 1.4)
    with TemporaryDirectory() as folder:
        for name in models.split(","):
            model = MODELS[name](Path(folder))
            if overload:
                command = _command("windtunnel serve", model.path)
                peak = Result(name, "", list(_loads(model, "", command, seconds, growth))).peak
                print(Overload.measure(command, model.path.with_name("requests.json"), 2 * peak, overload), flush=True)
                continue
            print(_overhead(model), flush=True)
            for server, start in _servers(model, peers):
                try:
                    result = Result(name, server, list(_loads(model, server, start, seconds, growth)))
                except (RuntimeError, subprocess.CalledProcessError) as error:
                    print(f"{name:<12} {server:<18} failed: {error}", flush=True)
                    continue
                if output is not None:
                    add(output, asdict(result))
                half = result.half()
                print(
                    f"{name:<12} {server:<18} peak {result.peak:7.0f}/s   p99 <= 10 ms {result.within(10):7.0f}/s   "
                    f"<= 50 ms {result.within(50):7.0f}/s   at {half.throughput:6.0f}/s median {half.median_ms:6.2f} "
                    f"p99 {half.p99_ms:7.2f} ms",
                    flush=True,
                )


def _servers(model: Model, peers: Path | None) -> Iterator[tuple[str, list[str]]]:
    for mode in MODES[model.name]:
        yield mode, _command(mode, model.path)
    if model.name == "cascade":
        yield "full model alone", _command("windtunnel serve", model.path.with_name("full.windtunnel"))
    if peers is not None and model.name == "trees":
        for peer in PEERS:
            yield peer, [str(peers), "-m", "benchmarks.serving.peers", peer, str(model.path)]


def _command(mode: str, path: Path) -> list[str]:
    return [sys.executable, "-m", "benchmarks.serving.server", mode, str(path)]


def _loads(model: Model, server: str, command: list[str], seconds: float, growth: float) -> Iterator[Load]:
    """Growing loads, until the server falls behind."""
    requests = model.path.with_name("requests.json")
    requests.write_text(json.dumps(_requests(model, server)))
    with running(command) as (port, _):
        run_client(requests, port, *WARM_UP)
        rate = FIRST_RATE
        while rate < LAST_RATE:
            yield (load := run_client(requests, port, rate, seconds))
            if load.throughput < BEHIND * rate:
                return
            rate *= growth


def _requests(model: Model, server: str) -> dict[str, Any]:
    if server == "mlserver":
        bodies = [{"inputs": [_tensor(name, value) for name, value in row.items()]} for row in model.rows]
        return {"path": "/v2/models/model/infer", "bodies": [*map(json.dumps, bodies)]}
    return {"path": "/predict", "bodies": [json.dumps([row]) for row in model.rows]}


def _tensor(name: str, value: Any) -> dict[str, Any]:
    return {"name": name, "shape": [1], "datatype": "BYTES" if isinstance(value, str) else "FP64", "data": [value]}


def _overhead(model: Model) -> str:
    """How long the parts of a request take without HTTP."""
    from benchmarks.serving.server import _open
    from windtunnel.serving.messages import parse_json, response_json, rows_of_json
    from windtunnel.serving.queue_steps import Entry
    from windtunnel.serving.responses import to_json
    from windtunnel.serving.schema import Schema

    net = _open(model.path)
    scored = Entry.of(net).net
    schema, body = Schema.of(scored, [scored]), json.dumps(model.rows[:1]).encode()
    rows = rows_of_json(parse_json(body), schema)
    outputs = net.predict(rows), net.predict_proba(rows)
    many = {name: [row[name] for row in model.rows] for name in model.rows[0]}
    parts = {
        "a row": lambda: (net.predict(rows), net.predict_proba(rows)),
        "JSON in": lambda: rows_of_json(parse_json(body), schema),
        "JSON out": lambda: to_json(response_json(["predict", "predict_proba"], outputs, [False, True])),
        f"{len(model.rows)} rows": lambda: (net.predict(many), net.predict_proba(many)),
    }
    times = {name: min(timeit(part, number=20) for _ in range(10)) / 20 for name, part in parts.items()}
    return f"{model.name}: " + ", ".join(f"{name} {1e6 * seconds:.0f} us" for name, seconds in times.items())


if __name__ == "__main__":
    app()
