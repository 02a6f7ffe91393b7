"""The HTTP application, called by a client through a socket."""

import gc
import http.client
import json
import os
import shutil
import socket
import struct
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from threading import Event

import numpy as np
import pyarrow as pa
import pytest
from file_mutations import changed_bytes, changed_json
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.preprocessing import StandardScaler

import windtunnel
from tests.support.churn import fitted_churn
from tests.support.http_server import request, running
from windtunnel.api.serve import application
from windtunnel.encode.rows import as_frame
from windtunnel.errors import BadFile
from windtunnel.serving.arrow_stream import ARROW, MAX_TEXT, rows_of_arrow
from windtunnel.serving.limits import Limits
from windtunnel.serving.models import Models
from windtunnel.serving.tensors import JSON_BYTES


@pytest.fixture(scope="module")
def fitted():
    return fitted_churn()


@pytest.fixture(scope="module")
def folder(fitted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    pipeline, frame = fitted
    windtunnel.translate(pipeline, calibrate=frame).save(folder / "churn.windtunnel")
    windtunnel.translate(LinearRegression().fit([[0.0, 1.0], [1.0, 1.0]], [1.0, 3.0])).save(folder / "line.windtunnel")
    return folder


@pytest.fixture(scope="module")
def port(folder):
    models = [folder / "churn.windtunnel", folder / "line.windtunnel"]
    # The collection of garbage after a reload goes through all objects of the tests, which takes seconds at times.
    app = application(models, max_bytes=100_000, max_rows=100, timeout=5.0)
    with running(app, keep_alive=60) as port:  # a client that a busy machine keeps waiting is not an idle one
        yield port


@pytest.fixture
def call(port):
    return partial(request, port)


def test_json_rows_arrow_and_tensors_give_the_predictions_of_the_source(call, fitted):
    pipeline, frame = fitted
    rows = frame.head(5)
    labels, probabilities = pipeline.predict(rows).tolist(), pipeline.predict_proba(rows)
    records = rows.to_dict("records")
    stream = arrow_stream(pa.Table.from_pandas(rows, preserve_index=False))
    bodies = [(records, {}), ({"rows": records}, {}), (stream, {"content-type": ARROW})]
    for body, headers in bodies:
        status, answer = call("POST", "/models/churn/predict", body, headers)
        assert (status, answer["predictions"], answer["classes"]) == (200, labels, ["no", "yes"])
        np.testing.assert_allclose(answer["probabilities"], probabilities, atol=1e-6)
    inputs = [
        {"name": "city", "shape": [5], "datatype": "BYTES", "data": rows.city.tolist()},
        {"name": "age", "shape": [5, 1], "datatype": "FP64", "data": [[age] for age in rows.age]},
    ]
    status, answer = call("POST", "/v2/models/churn/versions/1/infer", {"id": "7", "inputs": inputs})
    assert (status, answer["id"], [output["name"] for output in answer["outputs"]]) == (
        200,
        "7",
        ["predict", "predict_proba"],
    )
    assert answer["outputs"][0] == {"name": "predict", "datatype": "BYTES", "shape": [5], "data": labels}
    np.testing.assert_allclose(np.reshape(answer["outputs"][1]["data"], (5, 2)), probabilities, atol=1e-6)
    wanted = {"inputs": inputs, "outputs": [{"name": "predict_proba"}]}
    assert len(call("POST", "/v2/models/churn/infer", wanted)[1]["outputs"]) == 1
    tensor = {"name": "rows", "shape": [1, 2], "datatype": "FP32", "data": [2, 1]}
    assert call("POST", "/v2/models/line/infer", {"inputs": [tensor]})[1]["outputs"][0]["data"] == pytest.approx([5.0])
    assert call("POST", "/models/line/predict", [[2, 1]])[1] == {"predictions": pytest.approx([5.0])}


def test_metadata_health_and_metrics(call):
    assert call("GET", "/v2/health/live")[0] == call("GET", "/v2/health/ready")[0] == 200
    assert call("GET", "/v2/models/churn/ready")[0] == 200
    assert call("GET", "/v2")[1]["name"] == "windtunnel"
    facts = call("GET", "/v2/models/churn")[1]
    assert facts["inputs"] == [
        {"name": "city", "datatype": "BYTES", "shape": [-1]},
        {"name": "age", "datatype": "FP64", "shape": [-1]},
    ]
    assert facts["outputs"][1] == {"name": "predict_proba", "datatype": "FP64", "shape": [-1, 2]}
    call("POST", "/models/line/predict", [[2, 1]])
    assert 'windtunnel_requests_total{model="line",status="200"}' in call("GET", "/metrics")[1]


def test_a_running_server_exempts_what_it_loaded_from_garbage_collection(call):
    assert call("GET", "/v2/health/live")[0] == 200
    assert gc.get_freeze_count() > 100_000


GOOD = {"city": "Rom", "age": 50.0}
REJECTED = {
    "another column": ([{"city": "Rom", "years": 50}], 422, "'age'"),
    "a missing column": ([{"city": "Rom"}], 422, "'age'"),
    "rows that differ": ([GOOD, {"city": "Rom"}], 422, "row 1"),
    "a text for a number": ([GOOD | {"age": "old"}], 422, "age"),
    "a missing number": ([GOOD | {"age": None}], 422, "age"),
    "an unknown category": ([GOOD | {"city": "x" * 50_000}], 422, "city"),
    "no rows": ([], 422, "at least one row"),
    "a number": (7, 422, "list of rows"),
    "columns": ({"city": ["Rom"], "age": [50]}, 422, "an object with 'city', 'age'"),
    "the name of a model": ({"rows": [GOOD], "model": "other"}, 422, "an object with 'model'"),
    "no body": (b"", 422, "JSON"),
    "half of a JSON": (b'[{"city"', 422, "JSON"),
    "nested deeply": (b"[" * 90_000, 422, "JSON"),
    "bytes that are no text": (b"\xff\xfe", 422, "JSON"),
    "too many rows": ([GOOD] * 101, 413, "101 rows"),
    "too many bytes": (b" " * 100_001, 413, "100000 bytes"),
}


@pytest.mark.parametrize("what", REJECTED)
def test_bad_bodies_are_named(call, what):
    body, expected, said = REJECTED[what]
    status, answer = call("POST", "/models/churn/predict", body)
    assert (status, said in answer["error"]) == (expected, True), answer
    assert len(answer["error"]) < 1000
    assert call("POST", "/models/churn/predict", [GOOD])[0] == 200


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ([[2, 1], [3]], "row 0 has 2 values and row 1 has 1"),
        ([[2, [1]]], "row 0 holds a list"),
        ([[2, 1], None], "row 1 is null"),
        ([[2, "1_000"]], "row 0 holds a text"),
        ([[2, None], [{}, 1]], "row 1 holds an object"),
    ],
)
def test_rows_that_are_no_lists_of_numbers_are_named_in_the_words_of_json(call, body, said):
    status, answer = call("POST", "/models/line/predict", body)
    assert (status, said in answer["error"]) == (422, True), answer


def test_a_compressed_body_is_not_taken(call):
    status, answer = call("POST", "/models/churn/predict", b"", {"content-encoding": "gzip"})
    assert status == 415 and "'gzip'" in answer["error"]


TENSOR = {"name": "rows", "shape": [1, 2], "datatype": "FP64", "data": [2, 1]}


@pytest.mark.parametrize(
    "message",
    [
        [],
        {},
        {"inputs": []},
        {"inputs": [7]},
        {"inputs": [TENSOR, TENSOR | {"name": "more"}]},
        {"inputs": [TENSOR | {"shape": [2, 2]}]},
        {"inputs": [TENSOR | {"shape": [-1, 2]}]},
        {"inputs": [TENSOR | {"datatype": "FP128"}]},
        {"inputs": [TENSOR | {"data": ["a", {}]}]},
        {"inputs": [TENSOR | {"shape": [1, 1], "data": [1]}]},
        {"inputs": [TENSOR], "outputs": [{"name": "apply"}]},
        {"inputs": [TENSOR | {"datatype": "INT8", "data": [1e300, 1]}]},
        {"inputs": [TENSOR | {"shape": [True, 2]}]},
        {"inputs": [TENSOR | {"shape": [1] * 100 + [2]}]},
        {"inputs": [TENSOR | {"shape": [2**62] * 3000}]},
        {"inputs": [TENSOR | {"shape": [2], "data": [[1, 2], [3, 4]]}]},
        {"inputs": [TENSOR], "outputs": 5},
        {"inputs": [TENSOR, TENSOR]},
        {"inputs": [TENSOR | {"data": ["2", 1]}]},
        {"inputs": [TENSOR | {"data": [True, 1]}]},
        {"inputs": [TENSOR | {"datatype": "INT64", "data": [1.7, 1]}]},
        {"inputs": [TENSOR | {"datatype": "BOOL", "data": [0.3, True]}]},
        {"inputs": [TENSOR | {"datatype": "BOOL", "data": ["False", True]}]},
        {"inputs": [TENSOR | {"datatype": "FP32", "data": [-1e39, 1]}]},
        {"inputs": [{name: value for name, value in TENSOR.items() if name != "data"}]},
        {"inputs": [TENSOR | {"data": None, "shape": [1, 1]}]},
        {"inputs": [TENSOR | {"datatype": "BYTES", "data": ["a", {}]}]},
    ],
)
def test_bad_tensors_are_rejected(call, message):
    status, answer = call("POST", "/v2/models/line/infer", message)
    assert (status, bool(answer["error"])) == (422, True)


def test_a_tensor_request_gets_its_id_unless_that_is_no_text(call):
    nested = [0]
    for _ in range(300):
        nested = [nested]
    answers = [call("POST", "/v2/models/line/infer", {"inputs": [TENSOR], "id": id}) for id in ("7", nested)]
    assert [(status, answer.get("id")) for status, answer in answers] == [(200, "7"), (200, None)]


def arrow_stream(table, **options):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def test_arrow_columns_of_every_kind_are_read_or_rejected(call, fitted):
    pipeline, frame = fitted
    city, age = pa.array(frame.city[:2]), pa.array(frame.age[:2])
    probabilities = pipeline.predict_proba(frame[:2])
    long = pa.array(["x" * 2**20])
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * (MAX_TEXT // 2**20 + 1), pa.int8()), long)
    lengths = np.tile(np.array([2**20, 0, 0, 0], np.int32), (MAX_TEXT // 2**20 + 1, 1))
    lengths[:, 1] = np.frombuffer(b"xxxx", np.int32)[0]
    views = pa.Array.from_buffers(
        pa.string_view(), len(lengths), [None, pa.py_buffer(lengths.tobytes()), pa.py_buffer(b"x" * 2**20)]
    )
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([50.0]))
    union = pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([50.0, 1.0])])
    for table in ({"city": city.dictionary_encode(), "age": age}, {"city": city.cast(pa.string_view()), "age": age}):
        status, answer = call("POST", "/models/churn/predict", arrow_stream(pa.table(table)), {"content-type": ARROW})
        assert status == 200, answer
        np.testing.assert_allclose(answer["probabilities"], probabilities, atol=1e-6)
    for column in (repeated, views, runs, union, pa.array([[1], [2]])):
        with pytest.raises(windtunnel.BadInput, match="bytes of text|has type"):
            rows_of_arrow(bytearray(arrow_stream(pa.table({"city": column}))))
    with pytest.raises(windtunnel.BadInput, match="union"):
        as_frame(pa.table({"city": union}))
    renamed = arrow_stream(pa.table({"city": city})).replace(b"city", b"\xff\xfe\xff\xfe")
    with pytest.raises(windtunnel.BadInput, match="no Arrow stream: 'utf-8' codec"):
        rows_of_arrow(bytearray(renamed))
    for compression in ("zstd", "lz4"):
        body = arrow_stream(pa.table({"city": city.dictionary_encode(), "age": age}), compression=compression)
        status, answer = call("POST", "/models/churn/predict", body, {"content-type": ARROW})
        assert status == 422 and "compress" in answer["error"]


def test_no_changed_body_is_an_error_of_the_server(call, fitted):
    stream = arrow_stream(pa.Table.from_pandas(fitted[1].head(5), preserve_index=False))
    for seed in range(int(os.environ.get("WINDTUNNEL_FUZZ_FILES", "0")) // 5 or 200):
        random = np.random.default_rng(seed)
        rows, tensors = ([dict(GOOD), dict(GOOD)], {"inputs": [TENSOR | {"shape": [1, 2]}]})
        path, body, headers = [
            ("/models/churn/predict", changed_json(rows, random), {}),
            ("/v2/models/line/infer", changed_json(tensors, random), {}),
            ("/models/churn/predict", changed_bytes(json.dumps(rows).encode(), random), {}),
            ("/models/churn/predict", changed_bytes(stream, random), {"content-type": ARROW}),
        ][seed % 4]
        status, answer = call("POST", path, body, headers)
        assert status in (200, 413, 422), f"seed {seed}: {status} {answer}"


def test_binary_tensors_give_the_predictions_of_the_source(call, port, fitted):
    pipeline, frame = fitted
    rows = frame.head(5)
    texts = b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in rows.city)
    numbers = rows.age.to_numpy("<f8").tobytes()

    def tensor(name, datatype, data):
        return {"name": name, "shape": [5], "datatype": datatype, "parameters": {"binary_data_size": len(data)}}

    def infer(message, data):
        head = json.dumps(message).encode()
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            connection.request("POST", "/v2/models/churn/infer", head + data, {JSON_BYTES: str(len(head))})
            response = connection.getresponse()
            content, length = response.read(), int(response.getheader(JSON_BYTES, "0"))
        return response.status, json.loads(content[:length] if length else content), content[length:]

    inputs = [tensor("city", "BYTES", texts), tensor("age", "FP64", numbers)]
    message = {"inputs": inputs, "parameters": {"binary_data_output": True}}
    status, answer, data = infer(message, texts + numbers)
    assert (status, [output["name"] for output in answer["outputs"]]) == (200, ["predict", "predict_proba"])
    sizes = [output["parameters"]["binary_data_size"] for output in answer["outputs"]]
    labels = b"".join(struct.pack("<I", len(label)) + label.encode() for label in pipeline.predict(rows))
    assert (sizes, data[: sizes[0]]) == ([len(labels), 80], labels)
    np.testing.assert_allclose(np.frombuffer(data[sizes[0] :]).reshape(5, 2), pipeline.predict_proba(rows), atol=1e-6)
    mixed = message | {"outputs": [{"name": "predict", "parameters": {"binary_data": False}}]}
    assert infer(mixed, texts + numbers)[1]["outputs"][0]["data"] == pipeline.predict(rows).tolist()
    for data in (texts + numbers[:-1], texts + numbers + b"x", texts[:3] + b"\xff" + texts[4:] + numbers, b""):
        assert infer(message, data)[0] == 422
    for length in ("7", "99999", "-1", "x"):
        assert call("POST", "/v2/models/churn/infer", message, {JSON_BYTES: length})[0] == 422


def test_a_pipeline_that_ends_in_a_transformer_is_not_served(tmp_path):
    windtunnel.compile(StandardScaler().fit([[0.0], [1.0]])).save(tmp_path / "scaler.windtunnel")
    with pytest.raises(windtunnel.UnsupportedEstimator, match="ends in a transformer"):
        application([tmp_path / "scaler.windtunnel"])


def test_unknown_models_versions_and_paths_are_404(call):
    for path in ("/models/none/predict", "/predict", "/v2/models/churn/versions/9/infer"):
        assert call("POST", path, [GOOD])[0] == 404
    for method, path, status in (("GET", "/nothing", 404), ("GET", "/predict", 405)):
        got, answer = call(method, path)
        assert got == status and "POST /models/{model}/predict" in answer["error"]


def test_an_arrow_stream_that_is_none_is_rejected(call):
    assert call("POST", "/models/churn/predict", b"no stream", {"content-type": ARROW})[0] == 422


def test_a_client_that_never_ends_its_body_gets_a_timeout(port, call):
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b"POST /models/churn/predict HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n[")
        assert client.recv(100).startswith(b"HTTP/1.1 504")
    assert call("POST", "/models/churn/predict", [GOOD])[0] == 200


def test_no_request_is_lost_while_files_are_replaced_damaged_and_deleted(folder, port, call):
    """Four clients send one request after the other; every response is that of the old or of the new model."""
    line, other = folder / "line.windtunnel", folder / "other"
    windtunnel.translate(LinearRegression().fit([[0.0, 1.0], [1.0, 1.0]], [2.0, 5.0])).save(other)
    stop, answers = Event(), []

    def send():
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            while not stop.is_set():
                connection.request("POST", "/models/line/predict", "[[2, 1]]")
                response = connection.getresponse()
                answers.append((response.status, json.loads(response.read())))

    def wait_for(version):
        while call("GET", "/v2/models/line")[1]["versions"] != [version]:
            time.sleep(0.05)

    with ThreadPoolExecutor(4) as clients:
        sending = [clients.submit(send) for _ in range(4)]
        try:
            shutil.copy(other, folder / "part")
            (folder / "part").replace(line)
            wait_for("2")
            line.write_bytes(b"damaged")
            time.sleep(1.5)
            windtunnel.translate(StandardScaler().fit([[0.0, 1.0], [1.0, 1.0]])).save(line)  # nothing to predict
            time.sleep(1.5)
            line.unlink()
            time.sleep(0.5)
            assert call("POST", "/models/line/predict", [[2, 1]])[1]["predictions"] == pytest.approx([8.0])
            other.rename(line)
            wait_for("3")
        finally:
            stop.set()
        assert [client.result() for client in sending] == [None] * 4
    assert [answer for answer in answers if answer[0] != 200] == []
    assert {round(value, 6) for _, answer in answers for value in answer["predictions"]} == {5.0, 8.0}


def test_a_request_is_scored_by_the_version_that_its_rows_were_read_for(tmp_path):
    X, path = np.array([[0.0], [1.0], [2.0]]), tmp_path / "model"
    windtunnel.compile(LogisticRegression().fit(X, ["no", "yes", "yes"])).save(path)
    (served,) = Models([path], lambda path: windtunnel.load(path), Limits())
    loaded = served.loaded
    windtunnel.compile(LogisticRegression().fit(X, ["no", "never", "never"])).save(path)
    assert served.reload() and served.loaded.labels == ["never", "no"]
    found = served.server.outputs_or_future(["predict"], X, loaded.entry)
    (labels,) = found if isinstance(found, tuple) else found.result(30)
    assert {*labels} <= {*loaded.labels} == {"no", "yes"}
    first = weakref.ref(loaded.net)
    del loaded
    deadline = time.monotonic() + 30
    while first() is not None and time.monotonic() < deadline:  # the thread may not have dropped the one before yet
        gc.collect()
        time.sleep(0.01)
    assert first() is None


def test_a_length_of_many_zeros_is_rejected(call):
    for length in ("0" * 5000, "9" * 21):
        assert call("POST", "/v2/models/line/infer", b"{}", {JSON_BYTES: length})[0] == 422


def test_a_tensor_of_a_column_has_no_other_columns(call):
    tensor = {"name": "age", "shape": [1, 2], "datatype": "FP64", "data": [1.0, 2.0]}
    status, answer = call("POST", "/v2/models/churn/infer", {"inputs": [tensor]})
    assert status == 422 and "'age' is one column of this model" in answer["error"]


def test_a_server_leaves_no_variables_behind(folder, monkeypatch):
    seen = {}
    monkeypatch.setattr("uvicorn.run", lambda *_, **__: seen.update(os.environ))
    before = dict(os.environ)
    windtunnel.serve(folder / "line.windtunnel", workers=2)
    assert {*seen} - {*before} == {"PROMETHEUS_MULTIPROC_DIR", "WINDTUNNEL_SERVE"} and dict(os.environ) == before


def test_files_of_one_name_are_rejected(folder):
    with pytest.raises(windtunnel.InvalidOption, match="line.windtunnel, .*line have the same name"):
        application([folder / "line.windtunnel", folder / "more" / "line"])


def test_one_path_is_a_server_of_one_model(folder):
    assert application(str(folder / "churn.windtunnel"))
    net = windtunnel.load(folder / "churn.windtunnel")
    for models, said in (([net], "is a Translation"), (net, "is a Translation"), ([], "at least one file")):
        with pytest.raises(windtunnel.InvalidOption, match=said):
            application(models)


@pytest.mark.parametrize("limits", [{"timeout": 0}, {"max_bytes": -5}, {"max_wait_ms": -1}])
def test_limits_that_no_request_can_satisfy_are_rejected(folder, limits):
    with pytest.raises(windtunnel.InvalidOption, match=next(iter(limits))):
        application([folder / "churn.windtunnel"], **limits)


def test_a_limit_that_there_is_not_is_named(folder):
    with pytest.raises(windtunnel.InvalidOption, match=r"serve has no option 'max_batches': did you mean max_batch\?"):
        application([folder / "churn.windtunnel"], max_batches=3)


@pytest.mark.parametrize("error", [RuntimeError, BadFile])
def test_a_fault_of_the_server_is_counted_and_its_text_is_in_the_log_alone(call, monkeypatch, caplog, error):
    def fail(*_):
        raise error("a secret")

    monkeypatch.setattr("windtunnel.serving.scoring.rows_of_json", fail)
    status, answer = call("POST", "/models/line/predict", [[0.0, 1.0]])
    assert status == 500 and "secret" not in str(answer) and answer["type"] == "ServerError"
    assert "a secret" in caplog.text
    assert 'status="500"' in call("GET", "/metrics")[1]


def scored_rows(call):
    lines = call("GET", "/metrics")[1].splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("windtunnel_rows_total"))


def test_rows_that_are_rejected_are_not_counted_as_scored(call):
    call("POST", "/models/line/predict", [[0.0, 1.0]])
    before = scored_rows(call)
    assert call("POST", "/models/line/predict", [[0.0, 1.0, 2.0]] * 5)[0] == 422 and scored_rows(call) == before
    assert call("POST", "/models/line/predict", [[0.0, 1.0]] * 5)[0] == 200 and scored_rows(call) == before + 5


def test_a_column_that_the_model_does_not_read_may_hold_anything(call, fitted):
    pipeline, frame = fitted
    rows = [{**row, "tags": ["a", {"b": 1}]} for row in frame.head(3).to_dict("records")]
    for several in (rows, rows[:1]):
        status, answer = call("POST", "/models/churn/predict", several)
        assert status == 200 and answer["predictions"] == pipeline.predict(frame.head(len(several))).tolist()


def test_an_arrow_date_that_pandas_lacks_is_a_bad_request(call, fitted):
    _, frame = fitted
    table = pa.Table.from_pandas(frame.head(2), preserve_index=False)
    table = table.append_column("until", pa.array([10**8, 0], pa.int32()).cast(pa.date32()))
    status, answer = call("POST", "/models/churn/predict", arrow_stream(table), {"content-type": ARROW})
    assert status == 422 and "pandas cannot take" in answer["error"]


def test_metadata_and_responses_agree_on_the_type_of_unsigned_labels(tmp_path):
    classes = np.array([3, 2**63 + 5], dtype=np.uint64)
    net = windtunnel.compile(LogisticRegression().fit([[0.0], [1.0]], classes))
    net.save(tmp_path / "m.windtunnel")
    with running(application([tmp_path / "m.windtunnel"])) as port:
        outputs = request(port, "GET", "/v2/models/m")[1]["outputs"]
        tensor = {"name": "rows", "shape": [2, 1], "datatype": "FP64", "data": [[-9.0], [9.0]]}
        answer = request(port, "POST", "/v2/models/m/infer", {"inputs": [tensor]})[1]["outputs"]
    assert outputs[0]["datatype"] == answer[0]["datatype"] == "UINT64" and answer[0]["data"] == [3, 2**63 + 5]
