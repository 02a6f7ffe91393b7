"""A server with one way of batching: ``python -m benchmarks.serving.server MODE FILE PORT``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import uvicorn

import windtunnel
from windtunnel.api.serve import open_model
from windtunnel.serving.app import App
from windtunnel.serving.batching import Server
from windtunnel.serving.connection import uvicorn_options
from windtunnel.serving.limits import Limits
from windtunnel.serving.models import Models, Views
from windtunnel.serving.queue_steps import Entry, Task


class Queued(Server):
    """Each request goes through the pool, however quick it is."""

    QUICK_SECONDS = 0.0


class WholeRequests(Queued):
    """A cascade in one step: a batch leaves when its last row is done."""

    @staticmethod
    def entry(net: Any) -> Entry:
        """Both steps as one."""
        entry = Entry.of(net)
        return replace(entry, step=BothSteps(entry.step))  # type: ignore[arg-type]  # it stands for one


@dataclass
class BothSteps:
    """The steps of a cascade, one right after the other for the same batch."""

    first: Any

    @property
    def methods(self) -> Sequence[str]:
        """The methods of the model."""
        methods: Sequence[str] = self.first.methods
        return methods

    def task(self, methods: tuple[str, ...], rows: Any) -> Task:
        """That of the first step, for this one."""
        return replace(self.first.task(methods, rows), step=self)

    def run(self, tasks: Sequence[Task]) -> list[Any]:
        """The outputs of all tasks."""
        results = [*self.first.run(tasks)]
        if left := [at for at, result in enumerate(results) if isinstance(result, Task)]:
            outputs = results[left[0]].step.run([results[at] for at in left])
            for at, output in zip(left, outputs, strict=True):
                results[at] = output
        return results


MODES: dict[str, tuple[type[Server], Limits]] = {
    "one by one": (Queued, Limits(max_batch=1)),
    "request": (WholeRequests, Limits()),
    "stage": (Queued, Limits()),
    "windtunnel serve": (Server, Limits()),
}


def _open(path: Path) -> Any:
    if path.stem == "torch_trees":
        return windtunnel.compile(windtunnel.load(path), backend="torch")
    return open_model(path)


def main() -> None:
    """Serve until SIGTERM."""
    mode, path, port = sys.argv[1:]
    server, limits = MODES[mode]
    views = Views(lambda model: {}, lambda net, rows: {})
    app = App(Models([Path(path)], _open, limits, server), limits, views)
    uvicorn.run(app, port=int(port), log_level="error", **uvicorn_options(limits.max_connections))


if __name__ == "__main__":
    main()
