"""Scorers: rows straight from Python's values to outputs, and which rows go the general way."""

import numpy as np
import pandas as pd
import pytest
import torch
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge, SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler

import windtunnel
from windtunnel.modules.outputs.links import LINKS
from windtunnel.program.head import LABELS_AND_PROBABILITIES, Head

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(300, 4))
Y = np.abs(X[:, 0] * X[:, 1] + X[:, 2]).round(3)
TABLE = pd.DataFrame(
    {
        "text": pd.Series(GENERATOR.choice(["a", "b", "ä"], 300), dtype=object),
        "number": GENERATOR.choice([1.0, 2.0, 1.5], 300),
        "flag": GENERATOR.choice([True, False], 300),
        "value": X[:, 0],
    }
)


def direct(net, method, rows):
    """The output of the scorer; None if it left the rows to the general way."""
    if parts := net.engine.torch_parts():
        pytest.skip(f"without a native form: {parts}")
    return net.engine.direct(net, method, rows)


def encoded(**options):
    encoder = OrdinalEncoder(**options)
    columns = make_column_transformer((encoder, ["text", "number", "flag"]), remainder="passthrough")
    return make_pipeline(columns, LGBMRegressor(n_estimators=10, verbosity=-1, n_jobs=1)).fit(TABLE, Y)


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(),
        OneVsRestClassifier(LogisticRegression()),
        SGDClassifier(loss="modified_huber", random_state=0),
        PoissonRegressor(),
        Ridge(),
        LGBMClassifier(n_estimators=5, verbosity=-1, n_jobs=1),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.parametrize("labels", [2, 3])
def test_methods_give_what_the_source_gives(model, labels):
    classes = np.array(["no", "maybe", "yes"])[(X[:, 0] * 10).astype(int) % labels]
    pipeline = make_pipeline(StandardScaler(), model).fit(X, classes if hasattr(model, "predict_proba") else Y)
    net = windtunnel.compile(pipeline, backend="native")
    for method in ("predict", "predict_proba", "decision_function"):
        if hasattr(pipeline, method):
            for rows in (X[:1], X[:9], X.astype(np.float32)[:9], X[:9].tolist()):
                output, expected = direct(net, method, rows), getattr(pipeline, method)(np.float64(rows))
                assert output.dtype == expected.dtype and output.shape == expected.shape
                np.testing.assert_array_equal(output, expected) if expected.dtype.kind == "U" else (
                    np.testing.assert_allclose(output, expected, rtol=0, atol=1e-9)
                )
    if hasattr(pipeline, "predict_proba"):
        for rows in (X[:1], X[:9], X[:9].tolist()):
            if net.program.method_steps:
                assert direct(net, LABELS_AND_PROBABILITIES, rows) is None
                continue
            labels, probabilities = direct(net, LABELS_AND_PROBABILITIES, rows)
            assert labels.tolist() == direct(net, "predict", rows).tolist()
            assert labels.dtype == pipeline.predict(X[:1]).dtype and probabilities.flags.c_contiguous
            np.testing.assert_array_equal(probabilities, direct(net, "predict_proba", rows))


@pytest.mark.parametrize(
    "link, scores", [(link, count) for link in LINKS for count in (1, 3) if link != "sigmoid" or count == 1]
)
def test_links_are_those_of_torch(link, scores):
    from windtunnel.compiler.native.build import library
    from windtunnel.compiler.native.head import finish
    from windtunnel.compiler.native.image import ImageWriter

    values = np.concatenate([GENERATOR.normal(size=(40, scores)) * 5, np.zeros((1, scores)), [[-800.0] * scores]])
    image = ImageWriter(scores, 0)
    columns = finish(image, Head("multiclass", link, classes=np.arange(3)), "predict_proba", image.numbers)
    output = np.empty((len(values), len(columns)))
    library().Program(image.image(columns)).run(values, np.empty((len(values), 0), np.int64), output)
    np.testing.assert_allclose(output, LINKS[link](torch.from_numpy(values)).numpy(), rtol=1e-14, atol=1e-300)


def test_rows_of_categories_in_every_form():
    pipeline = encoded()
    net = windtunnel.compile(pipeline, backend="native")
    part = TABLE[:5]
    expected = pipeline.predict(part)
    columns = {name: part[name].tolist() for name in part}
    shuffled = {name: columns[name] for name in ("value", "flag", "number", "text")}
    np.testing.assert_allclose(direct(net, "predict", TABLE[:1]), expected[:1], rtol=0, atol=1e-12)
    assert direct(net, "predict", pd.concat([part, part], axis=1)) is None
    more = columns | {"other": [None] * 5}
    for rows in (part, columns, shuffled, more, part.to_numpy(dtype=object), part.values.tolist()):
        np.testing.assert_allclose(direct(net, "predict", rows), expected, rtol=0, atol=1e-12)
    same_numbers = columns | {"flag": [float(flag) for flag in columns["flag"]]}
    np.testing.assert_allclose(direct(net, "predict", same_numbers), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "change",
    [
        {"text": ["c"]},
        {"text": [None]},
        {"text": [1]},
        {"number": [7]},
        {"number": [np.inf]},
        {"number": ["1.0"]},
        {"number": [2**1100]},
    ],
    ids=str,
)
def test_what_may_be_rejected_goes_the_general_way(change):
    pipeline = encoded()
    net = windtunnel.compile(pipeline, backend="native")
    row = {"text": ["a"], "number": [1.0], "flag": [True], "value": [0.5]}
    assert direct(net, "predict", row) is not None
    assert direct(net, "predict", row | change) is None
    with pytest.raises(windtunnel.errors.BadInput):
        net.predict(row | change)


def test_unknown_categories_and_missing_numbers_where_the_source_takes_them():
    pipeline = encoded(handle_unknown="use_encoded_value", unknown_value=-1)
    net = windtunnel.compile(pipeline, backend="native")
    row = {"text": ["new"], "number": [9.0], "flag": [True], "value": [None]}
    frame = pd.DataFrame(row | {"value": [np.nan]}).astype({"text": object})
    np.testing.assert_allclose(direct(net, "predict", row), pipeline.predict(frame), rtol=0, atol=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_numbers_that_may_be_rejected_go_the_general_way(value):
    net = windtunnel.compile(make_pipeline(StandardScaler(), Ridge()).fit(X, Y), backend="native")
    rows = X[:3].copy()
    rows[1, 2] = value
    assert direct(net, "predict", rows) is None
    assert direct(net, "predict", X[:3]) is not None


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("place", [0, 5000, -1])
def test_one_number_among_many_rows_decides(place, threads):
    net = windtunnel.compile(make_pipeline(StandardScaler(), Ridge()).fit(X, Y), backend="native")
    rows = np.tile(X, (-(-9000 // len(X)), 1))
    wider = np.repeat(rows, 2, axis=0)[::2]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for part in (rows, wider):
            assert all(direct(net, "predict", part) is not None for _ in range(2))
            part[place, 1] = np.inf
            assert direct(net, "predict", part) is None
    finally:
        torch.set_num_threads(before)
    with pytest.raises(windtunnel.errors.BadInput):
        net.predict(rows)


@pytest.mark.parametrize("rows", [X[:0], X[:, :3], X[:2].T, [[1.0]], {}, "text", None, [1.0] * 4], ids=repr)
def test_other_rows_go_the_general_way(rows):
    net = windtunnel.compile(make_pipeline(StandardScaler(), Ridge()).fit(X, Y), backend="native")
    assert direct(net, "predict", rows) is None


def test_arrays_in_any_order_of_memory():
    pipeline = make_pipeline(StandardScaler(), Ridge()).fit(X, Y)
    net = windtunnel.compile(pipeline, backend="native")
    for rows in (np.asfortranarray(X[:7]), X[6::-1], X[:20:3], np.repeat(X[:7], 2, axis=1)[:, ::2]):
        rows.flags.writeable = False
        np.testing.assert_allclose(direct(net, "predict", rows), pipeline.predict(rows), rtol=0, atol=1e-12)


def test_what_is_written_moved_loaded_or_replaced_is_run():
    pipeline = make_pipeline(StandardScaler(), Ridge()).fit(X, Y)
    net = windtunnel.compile(pipeline, backend="native")
    before = net.predict(X[:3])
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    with torch.no_grad():
        for parameter in net.program.parameters():
            parameter.mul_(2.0)
    assert not np.allclose(net.predict(X[:3]), before)
    net.load_state_dict(state)
    np.testing.assert_array_equal(net.predict(X[:3]), before)
    parameter = next(net.program.parameters())
    parameter.data = parameter.data * 2
    assert not np.allclose(net.predict(X[:3]), before)
    step = net.program.steps[-1]
    step.module = type(step.module).rebuild(
        {name: tensor * 0 for name, tensor in step.module.state_dict().items()}, step.module.facts()
    )
    np.testing.assert_array_equal(net.predict(X[:3]), np.zeros(3))


def test_threads_share_many_rows():
    model = make_pipeline(StandardScaler(), LGBMRegressor(n_estimators=50, verbosity=-1, n_jobs=1)).fit(X, Y)
    net, rows = windtunnel.compile(model, backend="native"), np.tile(X, (30, 1))
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        outputs = [direct(net, "predict", rows) for _ in range(3)]  # the first call tells what a row takes
    finally:
        torch.set_num_threads(before)
    for output in outputs:
        np.testing.assert_array_equal(output, np.tile(outputs[0][: len(X)], 30))
    np.testing.assert_allclose(outputs[0][: len(X)], model.predict(X), rtol=0, atol=1e-12)
