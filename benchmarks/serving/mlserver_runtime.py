"""The runtime that MLServer loads: one tensor per column, as the Open Inference Protocol has it."""

import os

from mlserver import MLModel
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput

import windtunnel


class Scores(MLModel):  # type: ignore[misc]
    """Probabilities of a saved net."""

    async def load(self) -> bool:
        """Load the file that the environment names."""
        self.net = windtunnel.load(os.environ["WINDTUNNEL_FILE"])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Score a request."""
        values = self.net.predict_proba({tensor.name: [*tensor.data] for tensor in payload.inputs})
        output = ResponseOutput(
            name="predict_proba", shape=[*values.shape], datatype="FP64", data=values.ravel().tolist()
        )
        return InferenceResponse(model_name=self.name, outputs=[output])
