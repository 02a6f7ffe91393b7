"""A model as a deployment of Ray Serve, and as a step of Ray Data."""

import os
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import windtunnel
from tests.support.http_server import request
from windtunnel.api.serve import ray_deployment

ray = pytest.importorskip("ray")
serve = pytest.importorskip("ray.serve")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
PORT = 8149


@pytest.fixture(scope="module")
def fitted():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 2)), columns=["a", "b"])
    return LogisticRegression().fit(frame, np.where(frame.a > 0, "yes", "no")), frame


@pytest.fixture(scope="module")
def path(fitted, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "line.windtunnel"
    windtunnel.translate(fitted[0]).save(path)
    return path


@pytest.fixture(scope="module", autouse=True)
def cluster():
    environment = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    ray.init(num_cpus=4, include_dashboard=False, runtime_env={"env_vars": environment})
    yield
    serve.shutdown()
    ray.shutdown()


def test_a_killed_replica_loses_no_request_without_an_error(fitted, path):
    pipeline, frame = fitted
    serve.start(http_options={"port": PORT})
    deployment = ray_deployment([path]).options(num_replicas=2, ray_actor_options={"num_cpus": 0.5})
    serve.run(deployment.bind())
    rows = frame.head(20).to_dict("records")
    labels = pipeline.predict(frame.head(20)).tolist()
    end = time.monotonic() + 12

    def ask(worker):
        answers = []
        while time.monotonic() < end:
            answers.append(request(PORT, "POST", "/predict", rows))
        return answers

    with ThreadPoolExecutor() as pool:
        futures = [pool.submit(ask, worker) for worker in range(4)]
        time.sleep(3)
        os.kill(replicas()[0], signal.SIGKILL)
        answers = [answer for future in futures for answer in future.result()]
    assert Counter(status for status, _ in answers).keys() <= {200, 500, 503}
    assert sum(status != 200 for status, _ in answers) <= 4
    assert all(answer["predictions"] == labels for status, answer in answers if status == 200)
    while len(replicas()) < 2:
        time.sleep(0.2)


def replicas():
    """The process of each replica."""
    import psutil

    lines = {process.pid: process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])}
    return [pid for pid, line in lines.items() if any(part.startswith("ray::ServeReplica") for part in line)]


def test_ray_data_scores_a_data_set(fitted, path):
    pipeline, frame = fitted

    class Score:
        def __init__(self):
            self.net = windtunnel.load(path)

        def __call__(self, batch):
            return {"probability": self.net.predict_proba(pd.DataFrame(batch))[:, 1]}

    data = ray.data.from_pandas(frame).map_batches(Score, concurrency=2, batch_size=64, num_cpus=0.5)
    scores = np.sort(data.to_pandas().probability.to_numpy())
    np.testing.assert_allclose(scores, np.sort(pipeline.predict_proba(frame)[:, 1]), atol=1e-9)
