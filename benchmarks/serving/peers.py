"""The same model in other servers: ``python -m benchmarks.serving.peers NAME FILE PORT``, in their own environment."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import windtunnel


def rows_of(message: Any) -> dict[str, list[Any]]:
    """Columns of rows as JSON."""
    return {name: [row[name] for row in message] for name in message[0]}


def litserve(path: str, port: int, **batches: Any) -> None:
    """LitServe with one worker."""
    import litserve

    class Scores(litserve.LitAPI):  # type: ignore[misc]
        def setup(self, device: str) -> None:
            self.net = windtunnel.load(path)

        def decode_request(self, request: Any, **_: Any) -> Any:
            return request

        def predict(self, rows: Any, **_: Any) -> Any:
            if batches:
                return self.net.predict_proba(rows_of([row for request in rows for row in request])).tolist()
            return self.net.predict_proba(rows_of(rows)).tolist()

        def encode_response(self, output: Any, **_: Any) -> Any:
            return {"probabilities": output}

    server = litserve.LitServer(Scores(**batches), accelerator="cpu", workers_per_device=1)
    server.run(port=port, host="127.0.0.1", generate_client_file=False, log_level="error")


def mlserver(path: str, port: int) -> None:
    """MLServer with a runtime of its own, in the server's process."""
    from mlserver import MLServer
    from mlserver.settings import ModelSettings, Settings

    os.environ["WINDTUNNEL_FILE"] = path
    settings = Settings(
        host="127.0.0.1", http_port=port, grpc_port=port + 1, metrics_port=port + 2, parallel_workers=0, debug=False
    )
    model = ModelSettings(name="model", implementation="benchmarks.serving.mlserver_runtime.Scores")
    os.chdir(mkdtemp())
    Path("settings.json").write_text(json.dumps({}))
    asyncio.run(MLServer(settings).start([model]))


def main() -> None:
    """Serve until SIGTERM."""
    name, path, port = sys.argv[1:]
    if name == "mlserver":
        mlserver(path, int(port))
    elif name == "litserve":
        litserve(path, int(port))
    else:
        litserve(path, int(port), max_batch_size=64, batch_timeout=0.001)


if __name__ == "__main__":
    main()
