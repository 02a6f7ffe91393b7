"""RealMLP and TabM, fitted by another Python that has pytabkit, which is no dependency here."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.task import Task
from windtunnel.errors import BadInput

NEURAL = ("realmlp", "tabm")
JOB = Path(__file__).with_name("pytabkit_job.py")
ASK = (
    "import pyarrow, pytabkit, json; from importlib.metadata import version; "
    "print(json.dumps({name: version(name) for name in ('pytabkit', 'torch')}))"
)


class Predictions(NamedTuple):
    """What a model said of the valid and the test rows, and the seconds that fitting it took."""

    valid: NDArray[np.float64]
    test: NDArray[np.float64]
    seconds: float


@dataclass(frozen=True)
class Pytabkit:
    """A Python that has pytabkit.

    Attributes
    ----------
    python : Path
    versions : dict
        Of pytabkit and its torch.
    epochs : int or None
        The most epochs; None is pytabkit's own number.
    """

    python: Path
    versions: dict[str, str]
    epochs: int | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What is given to the estimators beside seed and metric."""
        return {} if self.epochs is None else {"n_epochs": self.epochs}

    def fit(self, model: str, task: Task, seed: int) -> Predictions:
        """Write the rows to a temporary folder, have the model fitted there, and read its predictions."""
        job = {"model": model, "kind": task.kind, "seed": seed, "options": self.options}
        job |= {"categories": task.categories, "numbers": task.numbers}
        with TemporaryDirectory() as place:
            folder = Path(place)
            for name, part in (("train", task.train), ("valid", task.valid), ("test", task.test)):
                part.X.assign(target=part.y).to_parquet(folder / f"{name}.parquet", index=False)
            (folder / "job.json").write_text(json.dumps(job))
            # From its own folder, a script would find our modules where it means libraries.
            script = shutil.copy(JOB, folder)
            done = subprocess.run([self.python, script, folder], capture_output=True, text=True, cwd=folder)
            if done.returncode:
                raise RuntimeError(f"{model} on {task.name}, by {self.python}, failed:\n{done.stderr[-3000:]}")
            with np.load(folder / "predictions.npz") as predictions:
                valid, test = (predictions[name].astype(np.float64) for name in ("valid", "test"))
            if task.kind == "multiclass":  # float32, as in ``Task.predictions``
                valid, test = (one / one.sum(axis=1, keepdims=True) for one in (valid, test))
            return Predictions(valid, test, json.loads((folder / "done.json").read_text())["seconds"])


def find(python: Path, epochs: int | None = None) -> Pytabkit:
    """Ask a Python for its pytabkit.

    Raises
    ------
    BadInput
        It does not start, or has no pytabkit or pyarrow; with what it said.
    """
    try:
        asked = subprocess.run([python, "-c", ASK], capture_output=True, text=True)
    except OSError as error:
        raise BadInput(f"--pytabkit-python {python} does not start: {error.strerror}") from error
    if asked.returncode:
        said = asked.stderr.strip().splitlines()[-1:] or ["it gave no reason"]
        raise BadInput(f"--pytabkit-python {python} cannot import pytabkit and pyarrow: {said[0]}")
    return Pytabkit(python, json.loads(asked.stdout), epochs)


def timed(task: Task, model: Any, started: float) -> Predictions:
    """The predictions of a model that was fitted in this process since ``started``."""
    seconds = time.perf_counter() - started
    return Predictions(task.predictions(model, task.valid.X), task.predictions(model, task.test.X), seconds)
