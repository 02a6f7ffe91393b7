"""A server with one way of batching: ``python -m benchmarks.serving.server MODE FILE PORT``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvicorn

import windtunnel
from windtunnel.api.serve import open_model
from windtunnel.serving import batching, stages
from windtunnel.serving.app import App
from windtunnel.serving.models import Limits, Views

FIXED = 32
FOREVER = 60_000.0


class WholeRequests:
    """A cascade in one stage: a batch leaves when its last row is done."""

    def __init__(self, model: Any) -> None:
        self._first = stages.first_stage(model)

    def task(self, methods: tuple[str, ...], rows: Any) -> Any:
        """As the first stage, which is replaced."""
        task = self._first.task(methods, rows)
        object.__setattr__(task, "stage", self)
        return task

    def run(self, tasks: Sequence[Any]) -> list[Any]:
        """Both stages."""
        results = [*self._first.run(tasks)]
        if left := [at for at, result in enumerate(results) if isinstance(result, stages.Task)]:
            outputs = results[left[0]].stage.run([results[at] for at in left])
            for at, output in zip(left, outputs, strict=True):
                results[at] = output
        return results


def _open(path: Path) -> Any:
    if path.stem == "torch_trees":
        return windtunnel.compile(windtunnel.load(path), backend="torch")
    return open_model(path)


def main() -> None:
    """Serve until SIGTERM."""
    mode, path, port = sys.argv[1:]
    limits = {
        "one by one": Limits(max_batch=1),
        "fixed": Limits(max_batch=FIXED, max_wait_ms=FOREVER),
    }.get(mode, Limits())
    if mode != "windtunnel serve":
        batching.QUICK_SECONDS = 0.0
    if mode == "request":
        batching.first_stage = WholeRequests  # type: ignore[assignment]
    app = App([Path(path)], _open, limits, Views(lambda model: {}, lambda net, rows: {})).starlette()
    uvicorn.run(app, port=int(port), access_log=False, log_level="error")


if __name__ == "__main__":
    main()
