"""The HTTP application: rows as JSON or Arrow, the Open Inference Protocol V2, and what describes the models."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from windtunnel.errors import WindTunnelError
from windtunnel.serving import metrics
from windtunnel.serving.endpoint import Endpoint, Requests
from windtunnel.serving.limits import Limits
from windtunnel.serving.models import Models, ServedModel, Views, watch
from windtunnel.serving.responses import error_response, json_response
from windtunnel.serving.schema import choices
from windtunnel.serving.scoring import Scoring

PAGE = Path(__file__).with_name("page.html")
PATHS = 'GET /ui and /models, POST /models/{model}/predict with rows such as [{"age": 31}], /v2, and GET /metrics.'
CSP = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"


class App(Starlette):
    """The ASGI application over the models of a server."""

    def __init__(self, models: Models, limits: Limits, views: Views) -> None:
        self._models, self._views, self._requests = models, views, Requests(limits)
        scoring = Scoring(limits, views)
        scored = {
            "/predict": scoring.predict,
            "/models/{model}/predict": scoring.predict,
            "/models/{model}/explain": scoring.explain,
            "/v2/models/{model}/infer": scoring.infer,
            "/v2/models/{model}/versions/{version}/infer": scoring.infer,
        }
        self._scored = {path: Endpoint(models, self._requests, respond) for path, respond in scored.items()}
        routes = [
            *[Route(path, endpoint, methods=["POST"]) for path, endpoint in self._scored.items()],
            Route("/models", self.names),
            Route("/models/{model}", self.description),
            Route("/", RedirectResponse("ui")),
            Route("/ui", self.page),
            Route("/metrics", self.metrics),
            Route("/v2", self.server_metadata),
            Route("/v2/health/live", self.healthy),
            Route("/v2/health/ready", self.healthy),
        ]
        for path in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
            routes += [Route(path, self.model_metadata), Route(path + "/ready", self.model_ready)]
        handlers: dict[Any, Any] = {WindTunnelError: _error, HTTPException: _http_error}
        super().__init__(routes=routes, lifespan=self._lifespan, exception_handlers=handlers)

    def build_middleware_stack(self) -> ASGIApp:
        """Starlette's; but paths of endpoints that score rows are looked up, as routing takes half as long as a row."""
        routed, names = super().build_middleware_stack(), [model.name for model in self._models]
        known = {
            path.format(model=name): (endpoint, {"model": name} if "{model}" in path else {})
            for path, endpoint in self._scored.items()
            if "{version}" not in path
            for name in names
        }

        async def respond(scope: Scope, receive: Receive, send: Send) -> None:
            endpoint, scope["path_params"] = known.get(scope.get("path", ""), (routed, {}))
            await (endpoint if scope.get("method") == "POST" else routed)(scope, receive, send)

        return respond

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(watching) for watching in (watch(self._models), self._requests.cancel_late())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            gc.unfreeze()
            for model in self._models:
                await asyncio.to_thread(model.server.close)

    def _model(self, request: Request) -> ServedModel:
        return self._models.find(request.path_params)

    async def healthy(self, request: Request) -> Response:
        """Whether the server takes requests."""
        return Response(status_code=200)

    async def server_metadata(self, request: Request) -> Response:
        """Name and version of the server."""
        facts = {"name": "windtunnel", "version": version("windtunnel"), "extensions": ["binary_tensor_data"]}
        return json_response(facts)

    async def model_ready(self, request: Request) -> Response:
        """Whether the model takes requests."""
        self._model(request)
        return Response(status_code=200)

    async def model_metadata(self, request: Request) -> Response:
        """The tensors that the model takes and gives."""
        model = self._model(request)
        schema = model.loaded.schema
        return json_response(
            {
                "name": model.name,
                "versions": [str(model.loaded.version)],
                "platform": "windtunnel",
                "inputs": [column.to_json() for column in schema.inputs],
                "outputs": [column.to_json() for column in schema.outputs],
            }
        )

    async def names(self, request: Request) -> Response:
        """The names of the models."""
        return json_response([model.name for model in self._models])

    async def description(self, request: Request) -> Response:
        """Schema, categories and report of a model."""
        model = self._model(request)
        loaded, schema = model.loaded, model.loaded.schema
        return json_response(
            {
                "name": model.name,
                "version": loaded.version,
                "named": schema.named,
                "inputs": [column.to_json() for column in schema.inputs],
                "choices": choices(loaded.net),
                "report": await asyncio.to_thread(self._views.report, loaded.model),
            }
        )

    async def page(self, request: Request) -> Response:
        """A page to try the models in a browser."""
        return Response(
            PAGE.read_bytes(), media_type="text/html; charset=utf-8", headers={"Content-Security-Policy": CSP}
        )

    async def metrics(self, request: Request) -> Response:
        """Counters and times for Prometheus."""
        for model in self._models:
            metrics.QUEUE.labels(model.name).set(model.server.queued_rows)
            metrics.VERSION.labels(model.name).set(model.loaded.version)
        return Response(metrics.exposition(), media_type="text/plain; version=0.0.4")


async def _error(request: Request, error: WindTunnelError) -> Response:
    return error_response(error)


async def _http_error(request: Request, error: HTTPException) -> Response:
    text = f"{error.detail}: {request.method} {request.url.path[:200]}; there are {PATHS}"
    return json_response({"error": text, "type": "HTTPException"}, error.status_code, error.headers)
