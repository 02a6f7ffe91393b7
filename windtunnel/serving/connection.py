"""Connections of clients to ``serve``, and their number."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from uvicorn.config import LOGGING_CONFIG
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from windtunnel.errors import Overloaded
from windtunnel.serving import metrics
from windtunnel.serving.responses import error_response

MAX_HEAD = 2**19
"""The most bytes of a request's first line and headers."""
DRAIN_SECONDS = 1.0
"""How long the body of a rejected request is read, so that its client gets to read the response."""


def uvicorn_options(max_connections: int) -> dict[str, Any]:
    """How uvicorn serves the application."""
    ours = {"windtunnel": {"handlers": ["default"], "level": "INFO", "propagate": False}}
    return {
        "http": Connection,
        "ws": "none",
        "limit_concurrency": max_connections,
        "proxy_headers": False,
        "access_log": False,
        "log_config": LOGGING_CONFIG | {"loggers": LOGGING_CONFIG["loggers"] | ours},
    }


class Connection(HttpToolsProtocol):
    """A connection; beyond ``limit_concurrency`` of them, a new one gets 503 for its first request and is closed.

    uvicorn's own limit rejects the requests of all connections once so many are open, idle ones included. Connections
    on which nothing goes on are closed, after once or twice the time for which an idle one is kept: those that send no
    request, or a part of its headers, and those whose client does not read its response.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection."""
        super().connection_made(transport)
        most, self.limit_concurrency = self.limit_concurrency, None
        if most is not None and len(self.connections) > most:
            self.app = _reject
        self._head_bytes = 0
        self._look_later()

    def data_received(self, data: bytes) -> None:
        """Parse what the client sends; 400 for a head that is too long."""
        super().data_received(data)
        if self.scope is None or "method" in self.scope:  # the head is complete
            self._head_bytes = 0
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD and not self.transport.is_closing():
            self.send_400_response(f"The headers have more than {MAX_HEAD} bytes.")

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection for the response to a complete request of a client that sends no more."""
        if self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            return False
        self.cycle.keep_alive = False
        return True

    def _state(self) -> tuple[Any, int]:
        return self.cycle, self.transport.get_write_buffer_size()

    def _look_later(self) -> None:
        self.loop.call_later(self.timeout_keep_alive, self._close_if_unchanged, self._state())

    def _close_if_unchanged(self, before: tuple[Any, int]) -> None:
        """Close the connection if no request is under way and nothing was received or sent since the last look."""
        if self not in self.connections:
            return
        if self._state() == before and before[1]:
            self.transport.abort()  # its client does not read
        elif self._state() == before and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()
        else:
            self._look_later()


async def _reject(scope: Any, receive: Any, send: Any) -> None:
    """503, and the end of the connection."""
    metrics.count_request("", 503, 0.0)
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while (await receive()).get("more_body"):
                pass
    error = Overloaded("the server has as many connections as it accepts; send the request again later.")
    await error_response(error, {"Connection": "close"})(scope, receive, send)
