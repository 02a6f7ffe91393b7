"""``Server``: what requests that share batches get."""

import asyncio
from threading import Event, Thread, current_thread

import numpy as np
import pytest
from sklearn.decomposition import NMF
from sklearn.experimental import enable_iterative_imputer  # noqa: F401  # makes IterativeImputer importable
from sklearn.feature_extraction import DictVectorizer
from sklearn.impute import IterativeImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import windtunnel
from windtunnel.errors import BadInput, InvalidOption, Overloaded


@pytest.fixture(scope="module")
def fitted():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(200, 3))
    return LogisticRegression().fit(X, np.where(X[:, 0] > 0, "yes", "no")), X


@pytest.fixture(scope="module")
def net(fitted):
    return windtunnel.compile(fitted[0])


class Gate:
    """Holds the server's thread inside of a batch."""

    def __init__(self, net, monkeypatch):
        self.entered, self.open, self.batches = Event(), Event(), []
        predict = net.predict

        def held(rows):
            self.batches.append(len(getattr(rows, "ids", rows)))
            self.entered.set()
            assert self.open.wait(30)
            return predict(rows)

        monkeypatch.setattr(type(net), "predict", lambda self, rows: held(rows))


def test_requests_of_many_callers_get_their_own_outputs(net, fitted):
    pipeline, X = fitted
    parts = np.array_split(X, 37)

    async def main():
        async with windtunnel.Server(net) as server:
            labels = asyncio.gather(*(server.predict(part) for part in parts))
            return await labels, await asyncio.gather(*(server.predict_proba(part) for part in parts))

    labels, probabilities = asyncio.run(main())
    assert [part.tolist() for part in labels] == [pipeline.predict(part).tolist() for part in parts]
    np.testing.assert_allclose(np.concatenate(probabilities), pipeline.predict_proba(X), atol=1e-12)


def test_outputs_of_several_methods_are_those_of_each(fitted):
    pipeline, X = fitted
    methods = ("predict_proba", "predict", "decision_function")
    for net in (windtunnel.compile(pipeline, backend="torch"), windtunnel.compile(pipeline)):
        for rows in (X[:1], X):
            outputs = net.outputs(methods, rows)
            assert outputs[1].tolist() == pipeline.predict(rows).tolist()
            np.testing.assert_allclose(outputs[0], pipeline.predict_proba(rows), atol=1e-12)
            np.testing.assert_allclose(outputs[2], pipeline.decision_function(rows), atol=1e-12)
            assert len(net.outputs(["predict"], rows)) == 1
        with pytest.raises(BadInput):
            net.outputs(methods, X * np.nan)


@pytest.mark.parametrize(
    "first", [NMF(2, solver="mu", tol=0.01, random_state=0), IterativeImputer(random_state=0)], ids=str
)
def test_requests_whose_rows_depend_on_each_other_share_no_batch(fitted, first, monkeypatch):
    X, y = np.abs(fitted[1]), fitted[0].predict(fitted[1])
    net = windtunnel.compile(make_pipeline(first, LogisticRegression()).fit(X, y))
    gate = Gate(net, monkeypatch)
    with windtunnel.Server(net) as server:
        futures = [server.submit(["predict"], X[:1])]
        assert gate.entered.wait(30)
        futures += [server.submit(["predict"], X[:3]) for _ in range(2)]
        gate.open.set()
        assert [len(future.result(30)[0]) for future in futures] == [1, 3, 3]
    assert gate.batches == [1, 3, 3]


def test_requests_that_arrive_during_a_batch_share_the_next_one(net, fitted, monkeypatch):
    gate, X = Gate(net, monkeypatch), fitted[1]
    with windtunnel.Server(net, max_batch=10) as server:
        first = server.submit(["predict"], X[:1])
        assert gate.entered.wait(30)
        later = [server.submit(["predict"], X[:3]) for _ in range(5)]
        gate.open.set()
        assert [len(future.result(30)[0]) for future in [first, *later]] == [1, 3, 3, 3, 3, 3]
    assert gate.batches == [1, 9, 6]


def test_a_full_queue_and_a_closed_server_reject_requests(net, fitted, monkeypatch):
    gate, X = Gate(net, monkeypatch), fitted[1]
    server = windtunnel.Server(net, max_queue=5)
    futures = [server.submit(["predict"], X[:1])]
    assert gate.entered.wait(30)
    futures.append(server.submit(["predict"], X[:4]))
    with pytest.raises(Overloaded, match="4 rows wait"):
        server.submit(["predict"], X[:2])
    cancelled = server.submit(["predict"], X[:1])
    assert cancelled.cancel()
    closing = Thread(target=server.close)
    closing.start()
    gate.open.set()
    closing.join(30)
    assert [len(future.result(0)[0]) for future in futures] == [1, 4]
    with pytest.raises(InvalidOption, match="closed"):
        server.submit(["predict"], X[:1])


def test_a_request_that_the_source_rejects_fails_alone(fitted, monkeypatch):
    X, bad = fitted[1], fitted[1][:1] * np.nan
    net = windtunnel.compile(fitted[0])
    gate = Gate(net, monkeypatch)
    with windtunnel.Server(net) as server:
        first = server.submit(["predict"], X[:1])
        assert gate.entered.wait(30)
        wrong, right = server.submit(["predict"], bad), server.submit(["predict"], X[:2])
        gate.open.set()
        assert len(first.result(30)[0]) == 1 and len(right.result(30)[0]) == 2
        with pytest.raises(BadInput, match="NaN"):
            wrong.result(30)
        with pytest.raises(BadInput):
            server.submit(["predict"], X[:1, :2])
    with pytest.raises(InvalidOption, match="max_batch=0"):
        windtunnel.Server(net, max_batch=0)


def test_what_waits_is_scored_by_the_model_that_it_was_sent_to(fitted, monkeypatch):
    X = fitted[1]
    scaler = windtunnel.compile(StandardScaler().fit(X))
    net = windtunnel.compile(fitted[0])
    with windtunnel.Server(net) as server:
        gate = Gate(net, monkeypatch)
        first = server.submit(["predict"], X[:1])
        assert gate.entered.wait(30)
        second = server.submit(["predict"], X[:1])
        server.replace(scaler)
        third = server.submit(["transform"], X[:1])
        gate.open.set()
        assert first.result(30)[0] == second.result(30)[0]
        assert third.result(30)[0].shape == (1, 3)


def test_a_few_rows_that_are_quick_are_scored_by_their_caller(net, fitted, monkeypatch):
    pipeline, X = fitted
    monkeypatch.setattr(windtunnel.Server, "QUICK_SECONDS", 60.0)
    with windtunnel.Server(net) as server:
        server.submit(["predict"], X[:1]).result(30)
        threads = []
        outputs = type(net).outputs
        monkeypatch.setattr(
            type(net), "outputs", lambda *arguments: threads.append(current_thread()) or outputs(*arguments)
        )
        assert server.submit(["predict"], X[:3]).result(30)[0].tolist() == pipeline.predict(X[:3]).tolist()
        server.submit(["predict"], X).result(30)
        with pytest.raises(BadInput):
            server.submit(["predict"], X[:1] * np.nan)
    assert [thread is current_thread() for thread in threads] == [True, False, True]


def test_what_is_no_model_and_no_list_of_methods_is_rejected(net, fitted):
    with pytest.raises(InvalidOption, match="Server got a LogisticRegression; give a model"):
        windtunnel.Server(fitted[0])
    with windtunnel.Server(net) as server:
        for methods in ("predict", []):
            with pytest.raises(InvalidOption, match="give a list of them"):
                server.submit(methods, fitted[1])


def test_a_wait_without_end_lasts_until_a_batch_is_full(net, fitted):
    _, X = fitted
    with windtunnel.Server(net, max_wait_ms=np.inf, max_batch=2) as server:
        server._seconds = server.QUICK_SECONDS  # through the pool
        futures = [server.submit(["predict"], X[at : at + 1]) for at in range(2)]
        assert [future.result(30)[0].tolist() for future in futures] == [net.predict(X[:1]), net.predict(X[1:2])]


def test_a_cancelled_request_leaves_the_queue(net, fitted, monkeypatch):
    _, X = fitted
    gate = Gate(net, monkeypatch)
    with windtunnel.Server(net, max_queue=3) as server:
        server._seconds = server.QUICK_SECONDS
        running = server.submit(["predict"], X[:1])
        assert gate.entered.wait(30)
        waiting = server.submit(["predict"], X[:3])
        with pytest.raises(Overloaded):
            server.submit(["predict"], X[:1])
        assert waiting.cancel() and server.queued_rows == 0
        after = server.submit(["predict"], X[:3])
        gate.open.set()
        assert len(running.result(30)[0]) == 1 and len(after.result(30)[0]) == 3


def test_a_single_dict_is_a_row_where_rows_are_dicts():
    rows = [{"x": 1.0, "city": "Paris"}, {"x": 2.0, "city": "Rome"}] * 20
    net = windtunnel.compile(make_pipeline(DictVectorizer(), LogisticRegression()).fit(rows, [0, 1] * 20))
    with windtunnel.Server(net) as server:
        for seconds in (0.0, server.QUICK_SECONDS):  # scored by the caller, and through the pool
            server._seconds = seconds
            assert server.submit(["predict"], rows[0]).result(30)[0].tolist() == net.predict(rows[0]).tolist()
