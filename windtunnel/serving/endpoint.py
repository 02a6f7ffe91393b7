"""Endpoints that take a body: bytes in, a response out, both counted and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from windtunnel.errors import Overloaded
from windtunnel.serving import metrics
from windtunnel.serving.models import Limits, Models, ServedModel
from windtunnel.serving.responses import ERRORS, TooLarge, error_response

BODIES = 4
"""How many bodies of the largest size may be in memory at once."""

Respond = Callable[[ServedModel, Headers, bytearray], Awaitable[Response]]


class Bodies:
    """The bodies in memory.

    Parameters
    ----------
    max_bytes : int
        The most bytes of a body.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._bytes = max_bytes, 0

    async def receive(self, receive: Receive, body: bytearray) -> bool:
        """Fill a body; False if the client has gone."""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return False
            part = message.get("body", b"")
            body += part
            self._bytes += len(part)
            if len(body) > self._max_bytes:
                raise TooLarge(f"the body has more than {self._max_bytes} bytes; send fewer rows at once.")
            if self._bytes > BODIES * self._max_bytes:
                raise Overloaded(f"requests of {self._bytes} bytes are under way; send the request again later.")
            more = message.get("more_body", False)
        return True

    def release(self, body: bytearray) -> None:
        """Count a body no longer."""
        self._bytes -= len(body)


class Endpoint:
    """The ASGI application of one kind of request with a body.

    Parameters
    ----------
    models : Models
    limits : Limits
    bodies : Bodies
        Shared by all endpoints of a server.
    respond : callable
        A model, headers and a body -> a response. Errors of this library become responses too.
    """

    def __init__(self, models: Models, limits: Limits, bodies: Bodies, respond: Respond) -> None:
        self._models, self._limits, self._bodies, self._respond = models, limits, bodies, respond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request, within the time that the limits grant."""
        start, name, body = perf_counter(), "", bytearray()
        try:
            async with asyncio.timeout(self._limits.timeout):
                model = self._models.find(scope["path_params"])
                name = model.name  # names that clients invent do not become labels
                if not await self._bodies.receive(receive, body):
                    metrics.count_request(name, 499, perf_counter() - start)
                    return
                response = await self._respond(model, Headers(scope=scope), body)
        except ERRORS as error:
            response = error_response(error)
        finally:
            self._bodies.release(body)
        metrics.count_request(name, response.status_code, perf_counter() - start)
        await response(scope, receive, send)
