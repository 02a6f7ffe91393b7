"""The HTTP application: rows as JSON or Arrow, and the Open Inference Protocol V2."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from windtunnel.encode import Rows
from windtunnel.errors import BadInput, InvalidOption, Overloaded, WindTunnelError
from windtunnel.serving import metrics
from windtunnel.serving.messages import (
    ARROW,
    parse_json,
    response_json,
    response_tensors,
    rows_of_arrow,
    rows_of_json,
    rows_of_tensors,
    to_json,
)
from windtunnel.serving.models import Limits, OpenModel, ServedModel, Views, watch
from windtunnel.serving.schema import choices
from windtunnel.serving.stages import row_count

LARGE_BODY = 2**16
"""From this size on a body is parsed and encoded in another thread."""
EXPLAINED_ROWS = 20
PAGE = Path(__file__).with_name("page.html")
CSP = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
Endpoint = Callable[[Request], Awaitable[Response]]


class TooLarge(WindTunnelError):
    """A body or a request that is larger than the server accepts."""


_STATUS: dict[type[Exception], int] = {
    BadInput: 422,
    InvalidOption: 422,
    TooLarge: 413,
    Overloaded: 503,
    TimeoutError: 504,
}


class App:
    """The endpoints over the models of a server.

    Parameters
    ----------
    paths : sequence of Path
        Files of models; the stem of a file is the name of its model.
    open_model : callable
        Loads a file.
    limits : Limits
    views : Views
    """

    def __init__(self, paths: Sequence[Path], open_model: OpenModel, limits: Limits, views: Views) -> None:
        self.limits, self._views = limits, views
        models = [ServedModel(path, open_model, limits) for path in paths]
        self.models = {model.name: model for model in models}
        if len(self.models) < len(models):
            raise InvalidOption("two models have the same name; give files with different stems.")

    def starlette(self) -> Starlette:
        """The ASGI application."""
        model, predict, infer = "/v2/models/{model}", self._counted(self.predict), self._counted(self.infer)
        routes = [
            Route("/predict", predict, methods=["POST"]),
            Route("/models/{model}/predict", predict, methods=["POST"]),
            Route("/ui", self.page),
            Route("/models", self.names),
            Route("/models/{model}", self.description),
            Route("/models/{model}/explain", self._counted(self.explain), methods=["POST"]),
            Route("/metrics", self.metrics),
            Route("/v2", self.server_metadata),
            Route("/v2/health/live", self.healthy),
            Route("/v2/health/ready", self.healthy),
        ]
        for prefix in (model, model + "/versions/{version}"):
            routes += [
                Route(prefix, self.model_metadata),
                Route(prefix + "/ready", self.model_ready),
                Route(prefix + "/infer", infer, methods=["POST"]),
            ]
        handlers: dict[Any, Any] = {WindTunnelError: _failed, HTTPException: _not_found, TimeoutError: _failed}
        return Starlette(routes=routes, lifespan=self._lifespan, exception_handlers=handlers)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        watching = asyncio.create_task(watch(self.models))
        try:
            yield
        finally:
            watching.cancel()
            gc.unfreeze()
            for model in self.models.values():
                await asyncio.to_thread(model.server.close)

    async def healthy(self, request: Request) -> Response:
        """Whether the server takes requests."""
        return Response(status_code=200)

    async def server_metadata(self, request: Request) -> Response:
        """Name and version of the server."""
        return _json({"name": "windtunnel", "version": version("windtunnel"), "extensions": []})

    async def model_ready(self, request: Request) -> Response:
        """Whether the model takes requests."""
        self._model(request)
        return Response(status_code=200)

    async def model_metadata(self, request: Request) -> Response:
        """The tensors that the model takes and gives."""
        model = self._model(request)
        return _json(
            {
                "name": model.name,
                "versions": [str(model.version)],
                "platform": "windtunnel",
                "inputs": [column.to_json() for column in model.schema.inputs],
                "outputs": [column.to_json() for column in model.schema.outputs],
            }
        )

    async def page(self, request: Request) -> Response:
        """A page to try the models in a browser."""
        return Response(
            PAGE.read_bytes(), media_type="text/html; charset=utf-8", headers={"Content-Security-Policy": CSP}
        )

    async def names(self, request: Request) -> Response:
        """The names of the models."""
        return _json([*self.models])

    async def description(self, request: Request) -> Response:
        """Schema, categories and report of a model."""
        model = self._model(request)
        columns = [column.to_json() for column in model.schema.inputs]
        report = await asyncio.to_thread(self._views.report, model.model)
        facts = {"name": model.name, "version": model.version, "named": model.schema.named, "inputs": columns}
        return _json(facts | {"choices": choices(model.net), "report": report})

    async def explain(self, request: Request) -> Response:
        """The contributions of the columns of a few rows to their scores."""
        model, body = self._model(request), await self._body(request)
        rows = rows_of_json(parse_json(body), model.schema)
        if row_count(rows) > EXPLAINED_ROWS:
            raise TooLarge(f"got {row_count(rows)} rows; at most {EXPLAINED_ROWS} are explained at once.")
        return _json(await asyncio.to_thread(self._views.explain, model.net, rows))

    async def metrics(self, request: Request) -> Response:
        """Counters and times for Prometheus."""
        for model in self.models.values():
            metrics.QUEUE.labels(model.name).set(model.server.queued_rows)
            metrics.VERSION.labels(model.name).set(model.version)
        return Response(metrics.exposition(), media_type="text/plain; version=0.0.4")

    async def predict(self, request: Request) -> Response:
        """Predictions of rows as JSON or an Arrow stream."""
        model, body = self._model(request), await self._body(request)
        arrow = request.headers.get("content-type", "").startswith(ARROW)

        def rows() -> Rows:
            return rows_of_arrow(body) if arrow else rows_of_json(parse_json(body), model.schema)

        outputs = await self._outputs(model, model.methods, rows, len(body))
        return _json(response_json(model.methods, outputs, model.net.head.labels_in_order))

    async def infer(self, request: Request) -> Response:
        """An inference request of the Open Inference Protocol V2."""
        model, body = self._model(request), await self._body(request)
        message = parse_json(body)
        methods = _methods(message, model)
        outputs = await self._outputs(model, methods, lambda: rows_of_tensors(message, model.schema), len(body))
        return _json(response_tensors(model.name, message.get("id"), methods, outputs))

    async def _outputs(
        self, model: ServedModel, methods: Sequence[str], rows: Callable[[], Rows], size: int
    ) -> tuple[Any, ...]:
        def submit() -> Future[tuple[Any, ...]]:
            parsed = rows()
            count = row_count(parsed)
            if count > self.limits.max_rows:
                raise TooLarge(f"got {count} rows, of at most {self.limits.max_rows}; send them in several requests.")
            metrics.ROWS.labels(model.name).inc(count)
            return model.server.submit(methods, parsed)

        future = submit() if size < LARGE_BODY else await asyncio.to_thread(submit)
        if future.done():
            return future.result()
        return await asyncio.wait_for(asyncio.wrap_future(future), self.limits.timeout)

    def _model(self, request: Request) -> ServedModel:
        name = request.path_params.get("model")
        if name is None and len(self.models) == 1:
            return next(iter(self.models.values()))
        if name not in self.models:
            raise HTTPException(404, f"no model {str(name)[:100]!r}; there are {', '.join(map(repr, self.models))}.")
        if request.path_params.get("version", str(self.models[name].version)) != str(self.models[name].version):
            raise HTTPException(404, f"model {name!r} has version {self.models[name].version}.")
        return self.models[name]

    async def _body(self, request: Request) -> bytes:
        parts, size = [], 0
        async with asyncio.timeout(self.limits.timeout):
            async for part in request.stream():
                size += len(part)
                if size > self.limits.max_bytes:
                    raise TooLarge(f"the body has more than {self.limits.max_bytes} bytes; send fewer rows at once.")
                parts.append(part)
        return b"".join(parts)

    def _counted(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint with its requests and times counted."""

        @wraps(endpoint)
        async def counted(request: Request) -> Response:
            start, name = perf_counter(), self._name(request)
            try:
                response = await endpoint(request)
            except tuple(_STATUS) as error:
                response = await _failed(request, error)
            except ClientDisconnect:
                response = Response(status_code=499)
            metrics.REQUESTS.labels(name, response.status_code).inc()
            metrics.LATENCY.labels(name).observe(perf_counter() - start)
            return response

        return counted

    def _name(self, request: Request) -> str:
        """The model of a request in the metrics; names that clients invent do not become labels."""
        with suppress(HTTPException):
            return self._model(request).name
        return ""


def _methods(message: Any, model: ServedModel) -> list[str]:
    """The outputs that an inference request names, or all."""
    wanted = message.get("outputs") if isinstance(message, dict) else None
    if not wanted:
        return model.methods
    names: list[Any] = [output.get("name") if isinstance(output, dict) else output for output in wanted]
    if wrong := [name for name in names if name not in model.methods]:
        raise BadInput(f"no output {str(wrong[0])[:100]!r}; the model has {', '.join(model.methods)}.")
    return names


async def _failed(request: Request, error: Exception) -> Response:
    status = next(status for kind, status in _STATUS.items() if isinstance(error, kind))
    text = str(error) or "the request was not answered in time; send fewer rows, or later."
    headers = {"Retry-After": "1"} if status == 503 else None
    return _json({"error": text, "type": type(error).__name__}, status, headers)


async def _not_found(request: Request, error: HTTPException) -> Response:
    return _json({"error": error.detail, "type": "NotFound"}, error.status_code)


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(to_json(value), status, headers, media_type="application/json")
