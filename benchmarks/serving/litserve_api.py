"""The model as LitServe takes it; its processes import this file."""

import os
from typing import Any

import litserve

import windtunnel


class Scores(litserve.LitAPI):  # type: ignore[misc]
    """Probabilities of a saved net, by request or by batch."""

    def setup(self, device: str) -> None:
        """Load the file that the environment names."""
        self.net = windtunnel.load(os.environ["WINDTUNNEL_FILE"])

    def predict(self, rows: Any, **_: Any) -> Any:
        """Probabilities of the rows of a request, or of each single-row request of a batch."""
        if rows and isinstance(rows[0], list):
            rows = [request[0] for request in rows]
        return self.net.predict_proba({name: [row[name] for row in rows] for name in rows[0]}).tolist()

    def encode_response(self, output: Any, **_: Any) -> Any:
        """Probabilities as JSON."""
        return {"probabilities": output}
