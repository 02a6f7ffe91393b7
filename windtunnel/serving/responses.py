"""Responses as JSON, and the status of each error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
from starlette.responses import Response

from windtunnel.errors import BadInput, InvalidOption, Overloaded, WindTunnelError


class TooLarge(WindTunnelError):
    """A body or a request that is larger than the server accepts."""


class NotFound(WindTunnelError):
    """A model or version that the server does not have."""


class UnsupportedMediaType(WindTunnelError):
    """A body in a form that the server does not take."""


_STATUS: dict[type[Exception], int] = {
    NotFound: 404,
    TooLarge: 413,
    UnsupportedMediaType: 415,
    BadInput: 422,
    InvalidOption: 422,
    Overloaded: 503,
    TimeoutError: 504,
}
ERRORS = tuple(_STATUS)
"""The errors that have a status; any other is a fault of the server."""


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value as JSON."""
    return Response(to_json(value), status, headers, media_type="application/json")


def error_response(error: Exception, headers: dict[str, str] | None = None) -> Response:
    """An error as JSON, with its status; of 503 with the seconds after which to try again."""
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)
    text = str(error) or "there was no response in time; send fewer rows, or later."
    retry = {"Retry-After": "1"} if status == 503 else {}
    return json_response({"error": text, "type": type(error).__name__}, status, retry | (headers or {}))


def to_json(value: Any) -> bytes:
    """JSON with NumPy's arrays and numbers; NaN becomes null."""
    return orjson.dumps(value, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)
