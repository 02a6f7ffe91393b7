"""``Lookup``: features from a mapping, and from Redis through its own clients."""

import asyncio
import json
import shutil
import subprocess

import fakeredis
import numpy as np
import pandas as pd
import pytest
import redis.asyncio
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import windtunnel
from windtunnel import Lookup
from windtunnel.estimators.lookup import _event_loop

USERS = {f"user:{number}": [number, number**2 / 10] for number in range(40)}


class Counted(dict):
    """A mapping that offers many keys at once, and records the requests."""

    def __init__(self, values):
        super().__init__(values)
        self.requests = []

    def mget(self, keys):
        self.requests.append(list(keys))
        return [self.get(key) for key in keys]


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    """Both clients of a Redis server, of a fake one where ``redis-server`` is not installed."""
    if shutil.which("redis-server") is None:
        server = fakeredis.FakeServer()
        yield filled(fakeredis.FakeRedis(server=server)), fakeredis.FakeAsyncRedis(server=server)
        return
    path = tmp_path_factory.mktemp("redis") / "socket"
    options = ["--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no"]
    with subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL) as process:
        try:
            retry = Retry(ConstantBackoff(0.02), 250)
            client = redis.Redis(unix_socket_path=str(path), retry=retry, retry_on_error=[redis.ConnectionError])
            asynchronous = redis.asyncio.Redis(unix_socket_path=str(path))
            yield filled(client), asynchronous
            client.close()
            asyncio.run_coroutine_threadsafe(asynchronous.aclose(), _event_loop()).result()
        finally:
            process.terminate()


def filled(client):
    client.mset({key: json.dumps(value) for key, value in USERS.items()})
    return client


@pytest.mark.parametrize("kind", ["mapping", "redis", "asynchronous redis"])
def test_values_of_the_store_and_nan_for_others(kind, clients):
    store = USERS if kind == "mapping" else clients[kind != "redis"]
    lookup = windtunnel.Lookup(store, "user:{}", batch_size=2).fit([[3], [4]])
    expected = [USERS["user:7"], [np.nan] * 2, USERS["user:0"], USERS["user:7"], USERS["user:39"]]
    rows = pd.DataFrame({"user": [7, -1, 0, 7, 39]})
    np.testing.assert_array_equal(lookup.transform(rows), expected)
    np.testing.assert_array_equal(clone(lookup).fit(rows).transform(rows), expected)
    assert clone(lookup).store is store


def test_every_key_is_asked_for_once_in_batches():
    store = Counted(USERS)
    lookup = windtunnel.Lookup(store, "user:{}", batch_size=3).fit([[0]])
    store.requests.clear()
    lookup.transform([[1], [2], [1], [3], [2], [4]])
    assert store.requests == [["user:1", "user:2", "user:3"], ["user:4"]]


def test_keys_of_values_and_of_several_columns():
    assert Lookup({7: 1.5, 8: [2.5]}).fit_transform([[8], [7]]).tolist() == [[2.5], [1.5]]
    assert Lookup({(1, "a"): 4.0}).fit_transform(np.array([[1, "a"]], dtype=object)).tolist() == [[4.0]]
    assert Lookup({"1-a": b"[4, 5]"}, "{}-{}").fit_transform([[1, "a"]]).tolist() == [[4.0, 5.0]]


@pytest.mark.parametrize(
    "store, rows, message",
    [
        (3, [[1]], "type int"),
        ({}, [[1]], "no key"),
        ({1: "text"}, [[1]], "'text'"),
        ({1: [1.0], 2: [1.0, 2.0]}, [[1], [2]], "of 1 and of 2 numbers"),
    ],
)
def test_what_is_rejected(store, rows, message):
    with pytest.raises(windtunnel.WindTunnelError, match=message):
        Lookup(store).fit(rows)


@pytest.mark.parametrize("make", [windtunnel.translate, windtunnel.compile])
def test_a_translation_looks_up_on_the_host(make, clients):
    generator = np.random.default_rng(0)
    rows = pd.DataFrame({"user": generator.integers(40, size=200), "age": generator.normal(size=200)})
    target = (rows.user + 5 * rows.age > 20).astype(int)
    parts = make_column_transformer((Lookup(clients[0], "user:{}"), ["user"]), ("passthrough", ["age"]))
    pipeline = make_pipeline(parts, LogisticRegression(max_iter=1000)).fit(rows, target)
    net = make(pipeline)
    assert [host.estimator for host in net.hosts] == ["Lookup"]
    np.testing.assert_allclose(net.predict_proba(rows), pipeline.predict_proba(rows), atol=1e-9)
    np.testing.assert_allclose(windtunnel.compile(net).predict_proba(rows), pipeline.predict_proba(rows), atol=1e-9)


def test_whole_numbers_beside_a_missing_one_have_the_same_keys():
    lookup = windtunnel.Lookup({"song:7": [1.0], "song:8": [2.0]}, "song:{}").fit(pd.DataFrame({"song": [7, 8]}))
    rows = pd.DataFrame({"song": [7, 8, None]})
    assert lookup.transform(rows)[:2].tolist() == [[1.0], [2.0]]
    assert np.isnan(lookup.transform(rows)[2])
    objects = np.array([[7.0], [8.0]], dtype=object)
    assert lookup.transform(objects).tolist() == [[1.0], [2.0]] and objects.tolist() == [[7.0], [8.0]]
