"""Endpoints that take a body: bytes in, a response out, both counted and bounded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from windtunnel.errors import Overloaded
from windtunnel.serving import metrics
from windtunnel.serving.limits import Limits
from windtunnel.serving.models import Models, ServedModel
from windtunnel.serving.responses import ERRORS, TooLarge, UnsupportedMediaType, error_response, json_response

LOGGER = logging.getLogger("windtunnel")
BODIES = 4
"""How many bodies of the largest size may be in memory at once."""
LOOKS = 20
"""How often late requests are looked for within the time that each may take."""

Respond = Callable[[ServedModel, Headers, bytearray], Awaitable[Response]]
"""The model that a path names, headers and a body -> a response."""


class Requests:
    """The requests under way: the memory of their bodies and the time of each are bounded."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self._bytes = limits, 0
        self._started: dict[asyncio.Task[Any], float] = {}

    def start(self, task: asyncio.Task[Any]) -> None:
        """Cancel the task of a request when its time is over."""
        self._started[task] = perf_counter()

    def end(self, task: asyncio.Task[Any], body: bytearray) -> None:
        """Forget a request and its body."""
        del self._started[task]
        self._bytes -= len(body)

    def is_late(self, task: asyncio.Task[Any]) -> bool:
        """Whether the time of a request is over."""
        return perf_counter() - self._started[task] >= self._limits.timeout

    async def cancel_late(self) -> None:
        """Cancel requests whose time is over; a timer for each of them would take a tenth of the time of a row."""
        while True:
            await asyncio.sleep(self._limits.timeout / LOOKS)
            for task in filter(self.is_late, [*self._started]):
                task.cancel()

    async def receive(self, receive: Receive, body: bytearray) -> bool:
        """Fill a body; False if the client has gone."""
        most, more = self._limits.max_bytes, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return False
            part = message.get("body", b"")
            body += part
            self._bytes += len(part)
            if len(body) > most:
                raise TooLarge(f"the body has more than {most} bytes; send fewer rows at once.")
            if self._bytes > BODIES * most:
                raise Overloaded(f"requests of {self._bytes} bytes are under way; send the request again later.")
            more = message.get("more_body", False)
        return True


class Endpoint:
    """The ASGI application of one kind of request with a body; errors become responses too."""

    def __init__(self, models: Models, requests: Requests, respond: Respond) -> None:
        self._models, self._requests, self._respond = models, requests, respond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request, within the time that the limits grant."""
        start, name, body, task = perf_counter(), "", bytearray(), asyncio.current_task()
        assert task is not None
        self._requests.start(task)
        try:
            model = self._models.find(scope["path_params"])
            name = model.name  # names that clients invent do not become labels
            headers = Headers(scope=scope)
            if (coding := headers.get("content-encoding", "")).lower() not in ("", "identity"):
                raise UnsupportedMediaType(f"the body has Content-Encoding {coding[:50]!r}; send it without.")
            if not await self._requests.receive(receive, body):
                metrics.count_request(name, 499, perf_counter() - start)
                return
            response = await self._respond(model, headers, body)
        except ERRORS as error:
            response = error_response(error)
        except asyncio.CancelledError:
            if not self._requests.is_late(task):
                raise
            task.uncancel()
            response = error_response(TimeoutError())
        except Exception:  # a fault of the server: the log has its text, which may hold secrets, the client has not
            LOGGER.exception("a request to %s failed", scope["path"])
            response = json_response({"error": "the server failed; its log says why.", "type": "ServerError"}, 500)
        finally:
            self._requests.end(task, body)
        metrics.count_request(name, response.status_code, perf_counter() - start)
        await response(scope, receive, send)
