"""Responses to requests with rows: predictions, tensors, explanations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import Response

from windtunnel.encode import Rows, count_rows
from windtunnel.serving.arrow_stream import ARROW, rows_of_arrow
from windtunnel.serving.limits import Limits
from windtunnel.serving.messages import parse_json, response_json, rows_of_json
from windtunnel.serving.models import ServedModel, Views
from windtunnel.serving.queue_steps import Entry, Outputs
from windtunnel.serving.responses import TooLarge, json_response
from windtunnel.serving.tensors import JSON_BYTES, parse_request, requested_outputs, rows_of_tensors, tensors_response

LARGE_BODY = 2**16
"""A body of this size or more is parsed and encoded in another thread."""
EXPLAINED_ROWS = 20


class Scoring:
    """The responses of endpoints that take rows."""

    def __init__(self, limits: Limits, views: Views) -> None:
        self._limits, self._views = limits, views
        self._explainer = ThreadPoolExecutor(1, "windtunnel-explain")

    async def predict(self, model: ServedModel, headers: Headers, body: bytearray) -> Response:
        """Predictions of rows as JSON or an Arrow stream."""
        loaded, arrow = model.loaded, headers.get("content-type", "").lower().startswith(ARROW)

        def rows() -> Rows:
            return rows_of_arrow(body) if arrow else rows_of_json(parse_json(body), loaded.schema)

        outputs = await self._outputs(model, loaded.entry, loaded.methods, rows, len(body))
        return json_response(response_json(loaded.methods, outputs, loaded.labels))

    async def infer(self, model: ServedModel, headers: Headers, body: bytearray) -> Response:
        """An inference request of the Open Inference Protocol V2."""
        parse = partial(parse_request, body, headers.get(JSON_BYTES))
        message, data = await asyncio.to_thread(parse) if len(body) >= LARGE_BODY else parse()
        loaded = model.loaded
        requested = requested_outputs(message, loaded.methods)
        rows = partial(rows_of_tensors, message, data, loaded.schema)
        outputs = await self._outputs(model, loaded.entry, [*requested], rows, len(body))
        return tensors_response(model.name, message, requested, outputs)

    async def explain(self, model: ServedModel, headers: Headers, body: bytearray) -> Response:
        """The contributions of the columns of a few rows to their scores."""
        loaded = model.loaded

        def explanation() -> dict[str, Any]:
            rows = rows_of_json(parse_json(body), loaded.schema)
            if (count := count_rows(rows)) > EXPLAINED_ROWS:
                raise TooLarge(f"got {count} rows; at most {EXPLAINED_ROWS} are explained at once.")
            return self._views.explain(loaded.net, rows)

        # In a thread of its own: explanations take seconds, and predictions need the others.
        return json_response(await asyncio.get_running_loop().run_in_executor(self._explainer, explanation))

    async def _outputs(
        self, model: ServedModel, entry: Entry, methods: Sequence[str], rows: Callable[[], Rows], size: int
    ) -> Outputs:
        def start() -> tuple[int, Outputs | Future[Outputs]]:
            parsed = rows()
            count = count_rows(parsed)
            if count > self._limits.max_rows:
                raise TooLarge(f"got {count} rows, of at most {self._limits.max_rows}; send them in several requests.")
            return count, model.server.outputs_or_future(methods, parsed, entry)

        count, started = start() if size < LARGE_BODY else await asyncio.to_thread(start)
        outputs = await asyncio.wrap_future(started) if isinstance(started, Future) else started
        model.scored_rows.inc(count)
        return outputs
