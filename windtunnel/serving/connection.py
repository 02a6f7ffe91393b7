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

DRAIN_SECONDS = 1.0
"""How long the body of a rejected request is read, so that its client gets to read the response."""


def uvicorn_options(max_connections: int) -> dict[str, Any]:
    """How uvicorn serves the application."""
    ours = {"windtunnel": {"handlers": ["default"], "level": "INFO", "propagate": False}}
    return {
        "http": Connection,
        "limit_concurrency": max_connections,
        "proxy_headers": False,
        "access_log": False,
        "log_config": LOGGING_CONFIG | {"loggers": LOGGING_CONFIG["loggers"] | ours},
    }


class Connection(HttpToolsProtocol):
    """A connection; beyond ``limit_concurrency`` of them, a new one gets 503 for its first request and is closed.

    uvicorn's own limit rejects the requests of all connections once so many are open, idle ones included. A
    connection that sends no request is closed after the time for which an idle one is kept.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection."""
        super().connection_made(transport)
        most, self.limit_concurrency = self.limit_concurrency, None
        if most is not None and len(self.connections) > most:
            self.app = _reject
        self.loop.call_later(self.timeout_keep_alive, self._close_without_request)

    def _close_without_request(self) -> None:
        if self.cycle is None:
            self.transport.close()


async def _reject(scope: Any, receive: Any, send: Any) -> None:
    """503, and the end of the connection."""
    metrics.count_request("", 503, 0.0)
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while (await receive()).get("more_body"):
                pass
    error = Overloaded("the server has as many connections as it accepts; send the request again later.")
    await error_response(error, {"Connection": "close"})(scope, receive, send)
