"""``serve``: models over HTTP, one process per core."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from json import dumps, loads
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from windtunnel.errors import InvalidOption, check_installed
from windtunnel.serving.limits import Limits
from windtunnel.trainers.shown_options import shows_options_of

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from windtunnel.encode import Rows
    from windtunnel.program.translated import TranslatedPipeline
    from windtunnel.serving.cascade.cascade import Cascade

SETTINGS = "WINDTUNNEL_SERVE"
"""The environment variable that tells the processes of a server what to serve."""
GRACEFUL_SECONDS = 30


SERVER_PACKAGES = ("starlette", "uvicorn", "httptools", "orjson", "prometheus_client")


@shows_options_of(Limits)
def application(models: str | PathLike[str] | Sequence[str | PathLike[str]], **limits: Any) -> Starlette:
    """The ASGI application that ``serve`` runs, for another ASGI server.

    Parameters
    ----------
    models : path or sequence of paths
        Files that ``save`` of a net or a cascade wrote. The stem of a file is the name of its model.
    **limits
        Fields of ``windtunnel.serving.limits.Limits``.
    """
    check_installed("serve", "serve", *SERVER_PACKAGES)
    from windtunnel.serving.app import App
    from windtunnel.serving.models import Models, Views

    paths = _paths(models)
    accepted = Limits.of(limits)
    return App(Models(paths, open_model, accepted), accepted, Views(_report, _explain))


@shows_options_of(Limits)
def serve(
    models: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    workers: int = 1,
    **limits: Any,
) -> None:
    """Serve models over HTTP until SIGTERM or SIGINT; then requests under way are answered.

    ``POST /predict`` takes rows as JSON or as an Arrow stream, ``/v2`` speaks the Open Inference Protocol V2, and
    ``/metrics`` is for Prometheus. A file that is replaced is loaded again.

    Parameters
    ----------
    models : path or sequence of paths
        Files that ``save`` of a net or a cascade wrote. The stem of a file is the name of its model.
    host : str
        Address to listen on; "0.0.0.0" for all.
    port : int
        TCP port to listen on.
    workers : int
        Processes that share the port.
    max_batch, max_wait_ms, max_queue
        Those of ``Server``.
    max_rows, max_bytes : int
        Largest number of rows of a request, and of bytes of its body.
    max_connections : int
        Largest number of connections of each process; further ones get status 503.
    timeout : float
        Seconds within which a body must arrive and its response must be ready.
    """
    check_installed("serve", "serve", *SERVER_PACKAGES)
    import uvicorn

    from windtunnel.serving.connection import uvicorn_options

    settings = asdict(Limits.of(limits)) | {"models": [str(path) for path in _paths(models)]}
    with TemporaryDirectory() as folder:
        variables = {SETTINGS: dumps(settings)} | ({"PROMETHEUS_MULTIPROC_DIR": folder} if workers > 1 else {})
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)  # for the worker processes
        try:
            uvicorn.run(
                "windtunnel.api.serve:from_environment", factory=True, host=host, port=port, workers=workers,
                timeout_graceful_shutdown=GRACEFUL_SECONDS, **uvicorn_options(settings["max_connections"]),
            )  # fmt: skip
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value


def _paths(models: Any) -> list[Path]:
    """The paths of one model or several; ``InvalidOption`` for none, and for models in the place of paths."""
    paths = [*models] if isinstance(models, list | tuple) else [models]
    if wrong := [type(path).__name__ for path in paths if not isinstance(path, str | PathLike)]:
        raise InvalidOption(f"a model to serve is a {wrong[0]}; give the path of a file that save wrote")
    if not paths:
        raise InvalidOption("there is no model to serve; give the path of at least one file")
    return [Path(path) for path in paths]


@shows_options_of(Limits)
def ray_deployment(models: str | PathLike[str] | Sequence[str | PathLike[str]], **limits: Any) -> Any:
    """A deployment of Ray Serve, whose replicas speak what ``serve`` speaks; needs the extra ``ray``.

    ``ray.serve.run(ray_deployment(["model.windtunnel"]).options(num_replicas=2).bind())`` starts it.

    Parameters
    ----------
    models : path or sequence of paths
        Files that every node can read. The stem of a file is the name of its model.
    **limits
        Fields of ``windtunnel.serving.limits.Limits``.

    Returns
    -------
    ray.serve.Deployment
    """
    from ray import serve

    def build() -> Starlette:
        return application(models, **limits)

    @serve.deployment(name="windtunnel")
    @serve.ingress(build)
    class Replica:
        """Holds the application."""

    return Replica


def from_environment() -> Starlette:
    """The application of the settings that ``serve`` left in the environment."""
    settings = loads(os.environ[SETTINGS])
    return application(settings.pop("models"), **settings)


def open_model(path: Path) -> Any:
    """The net or cascade of a file, compiled."""
    from windtunnel.api.compile import compile
    from windtunnel.api.load import load
    from windtunnel.serving.cascade.cascade import Cascade
    from windtunnel.serving.cascade.file import is_cascade

    if is_cascade(path):
        return Cascade.load(path)
    net = load(path)
    return compile(net) if net.engine is None else net  # a file of a compiled model brings its engine


def _report(model: TranslatedPipeline | Cascade) -> dict[str, Any]:
    from windtunnel.api.report import Report
    from windtunnel.serving.cascade.cascade import Cascade

    if not isinstance(model, Cascade):
        return Report.of(model).to_dict()
    report = Report.of(model.full).to_dict()
    return report | {"facts": [["cascade", model.report()], *report["facts"]]}


def _explain(net: TranslatedPipeline, rows: Rows) -> dict[str, Any]:
    from windtunnel.explain import explain

    explanation = explain(net, rows, None)
    shown = ("names", "values", "base", "outputs", "unit", "method")
    return {name: getattr(explanation, name) for name in shown}
