"""Encoders of labels: any sequence of them, the source's own types and shapes, and what is rejected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import LabelBinarizer, LabelEncoder, MultiLabelBinarizer

import windtunnel
from windtunnel.errors import BadInput, UnsupportedEstimator

LABELS: dict[str, Any] = {
    "texts": ["b", "a", "ünïcode", "", "a"],
    "one label": ["a", "a", "a"],
    "two labels": ["yes", "no", "yes"],
    "integers": [7, -3, 1, 7],
    "booleans": [True, False, True],
    "one boolean": [True, True],
    "whole floats": [2.0, -1.0, 0.0, 2.0],
    "array of objects": np.array(["x", "y", "z"], dtype=object),
    "pandas texts": pd.Series(["x", "y", "z"], dtype="str", index=[9, 9, 3]),
    "pandas categories": pd.Series(["x", "y", "z", "y"], dtype="category"),
    "nullable integers": pd.Series([5, 6, 8], dtype="Int64"),
}
MISSING: dict[str, Any] = {
    "texts with None": pd.Series(["a", None, "b"], dtype=object),
    "texts with NaN": pd.Series(["a", np.nan, "b"], dtype="str"),
    "fractions with NaN": np.array([0.5, np.nan, -2.5]),
    "objects with None": np.array([3, None, 1], dtype=object),
}
BINARIZERS: dict[str, Callable[[], LabelBinarizer]] = {
    "0 and 1": LabelBinarizer,
    "-2 and 5": lambda: LabelBinarizer(neg_label=-2, pos_label=5),
    "-1 and 0": lambda: LabelBinarizer(neg_label=-1, pos_label=0),
    "sparse": lambda: LabelBinarizer(pos_label=3, sparse_output=True),
}


def output(source: Any, rows: Any) -> np.ndarray:
    given = source.transform(rows)
    return np.asarray(given.toarray() if hasattr(given, "toarray") else given)


def assert_same(source: Any, rows: Any, given: Any = None, net: Any = None) -> None:
    wanted, got = output(source, rows), (net or windtunnel.compile(source)).transform(rows if given is None else given)
    assert got.dtype == wanted.dtype == np.int64
    assert got.shape == wanted.shape
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("name", LABELS | MISSING)
def test_codes_are_those_of_the_source(name: str) -> None:
    rows = (LABELS | MISSING)[name]
    assert_same(LabelEncoder().fit(rows), rows)
    assert_same(LabelEncoder().fit(rows), rows[:1])


@pytest.mark.parametrize("options", BINARIZERS)
@pytest.mark.parametrize("name", LABELS)
def test_indicators_are_those_of_the_source(name: str, options: str) -> None:
    rows = LABELS[name]
    assert_same(BINARIZERS[options]().fit(rows), rows)
    assert_same(BINARIZERS[options]().fit(rows), rows[:1])


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "list": np.ndarray.tolist,
    "tuple": tuple,
    "tensor": torch.from_numpy,
    "Series on another index": lambda rows: pd.Series(rows, index=np.arange(len(rows))[::-1]),
    "column": lambda rows: rows[:, None],
    "DataFrame": lambda rows: pd.DataFrame({"label": rows}),
    "Arrow array": pa.array,
    "floats": lambda rows: rows.astype(np.float64),
    "objects": lambda rows: rows.astype(object),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("encoder", [LabelEncoder(), LabelBinarizer()], ids=["codes", "indicators"])
def test_labels_of_any_form(encoder: Any, form: str) -> None:
    rows = np.array([3, 1, 7, 1])
    assert_same(encoder.fit(rows), rows, FORMS[form](rows))


UNSEEN = [["a", "zz", "c"], ["zz"], ["", "b", "c", "d"], [1, 9, 2], [9.0, 3.0], [-7], np.array([True, False])]


@pytest.mark.parametrize("rows", UNSEEN)
def test_an_unseen_label_is_a_row_of_neg_label(rows: Any) -> None:
    assert_same(LabelBinarizer(neg_label=-1).fit(["a", "b", "c"] if isinstance(rows[0], str) else [1, 2, 3]), rows)


REJECTED: dict[str, tuple[Any, Any, Any]] = {
    "unseen text": (LabelEncoder(), ["a", "b", "c"], ["a", "zz"]),
    "unseen number": (LabelEncoder(), [1, 2, 3], [1, 4]),
    "missing": (LabelEncoder(), ["a", "b"], np.array(["a", None], dtype=object)),
    "missing number": (LabelEncoder(), [1, 2], [1, np.nan]),
    "infinite": (LabelEncoder(), [1.0, 2.0], [1.0, np.inf]),
    "fraction of three": (LabelBinarizer(), [1, 2, 3], [1, 1.5]),
    "fraction, as objects": (LabelBinarizer(), [1, 2, 3], [1.5, 2]),
    "infinite of three": (LabelBinarizer(), [1, 2, 3], [1, np.inf]),
    "beyond int64": (LabelBinarizer(), [1, 2, 3], [1e300, 1.0]),
    "missing of three": (LabelBinarizer(), ["a", "b", "c"], np.array(["a", None], dtype=object)),
    "missing number of three": (LabelBinarizer(), [1, 2, 3], [1, np.nan]),
}


@pytest.mark.parametrize("name", REJECTED)
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
def test_what_the_source_rejects_is_rejected(name: str) -> None:
    encoder, labels, rows = REJECTED[name]
    source = encoder.fit(labels)
    with pytest.raises((ValueError, TypeError)):
        source.transform(rows)
    net = windtunnel.compile(source)
    with pytest.raises(BadInput):
        net.transform(rows)
    assert_same(source, labels, net=net)


@pytest.mark.parametrize(
    ("encoder", "labels", "rows"),
    [
        pytest.param(LabelEncoder(), [1, 2, 5], [1.5, 2.9], id="cut to whole numbers"),
        pytest.param(LabelEncoder(), ["abc", "unk"], ["unknown"], id="cut to three letters"),
        pytest.param(LabelEncoder(), [True, False], [7], id="taken for true"),
        pytest.param(LabelBinarizer(), ["a", "b"], ["a", "c"], id="of two classes"),
        pytest.param(LabelBinarizer(), [5], [5, 6], id="of one class"),
        pytest.param(LabelBinarizer(), [1, 2, 3], [1, "zz"], id="all made texts"),
    ],
)
def test_what_the_source_gives_by_its_types_or_by_other_rows_is_rejected(encoder: Any, labels: Any, rows: Any) -> None:
    source = encoder.fit(labels)
    source.transform(rows)
    with pytest.raises(BadInput):
        windtunnel.compile(source).transform(rows)


def test_two_classes_are_not_probed_with_a_third_as_the_shape_depends_on_it() -> None:
    source = LabelBinarizer().fit(["a", "b"])
    assert source.transform(["a", "c"]).shape == (2, 1)
    assert source.transform(["a", "b", "c"]).shape == (3, 2)


def test_unseen_labels_are_named() -> None:
    with pytest.raises(BadInput) as error:
        windtunnel.compile(LabelEncoder().fit(["a", "b"])).transform(["a", "zz", "q"])
    assert str(error.value) == (
        "the rows hold labels that the encoder was not fitted on: 'q', 'zz'. Fit it on them too, or drop these rows."
    )


@pytest.mark.parametrize("rows", [[["a"], ["b"]], {"a": 1}, "a", np.array([["a", "b"]])], ids=repr)
def test_what_is_no_sequence_of_labels_is_rejected(rows: Any) -> None:
    for encoder in (LabelEncoder(), LabelBinarizer()):
        with pytest.raises(BadInput):
            windtunnel.compile(encoder.fit(["a", "b", "c"])).transform(rows)


@pytest.mark.parametrize("labels", [[2**53 + 2, 0, 1], np.array(["2020-01-01"], dtype="datetime64[D]")], ids=str)
def test_labels_that_cannot_be_looked_up(labels: Any) -> None:
    source = LabelEncoder().fit(labels)
    with pytest.raises(UnsupportedEstimator) as error:
        windtunnel.compile(source)
    with pytest.raises(UnsupportedEstimator, match="2\\*\\*53|of type date") as kept:
        windtunnel.compile(source, calibrate=labels)  # nor can the host, which gives columns
    assert str(error.value.__cause__) == str(kept.value)


def test_a_matrix_of_indicators_is_not_translated() -> None:
    with pytest.raises(UnsupportedEstimator) as error:
        windtunnel.compile(LabelBinarizer().fit(np.array([[1, 0], [0, 1]])))
    assert "matrix of indicators" in str(error.value.__cause__)


def test_binarizers_in_a_pipeline_and_side_by_side() -> None:
    rows = ["c", "a", "b", "a"]
    parts = [LabelBinarizer(neg_label=low).fit(rows) for low in (0, -3)]
    for source in (make_union(*parts), make_pipeline(LabelEncoder().fit(rows), LabelBinarizer().fit([0, 1, 2]))):
        np.testing.assert_array_equal(windtunnel.compile(source).transform(rows), source.transform(rows))


@pytest.mark.parametrize("labels", [["b", "a", "c"], [3, 1, 7]], ids=["texts", "numbers"])
@pytest.mark.parametrize("encoder", [LabelEncoder(), LabelBinarizer()], ids=["codes", "indicators"])
@pytest.mark.parametrize("way", ["float32", "torchscript", "onnx", "saved"])
def test_every_way_out_gives_the_same(encoder: Any, labels: list[Any], way: str, tmp_path: Path) -> None:
    source = encoder.fit(labels)
    if way == "saved":
        windtunnel.compile(source).save(tmp_path / "net")
        net = windtunnel.load(tmp_path / "net")
    else:
        net = windtunnel.compile(source, **({"dtype": way} if way == "float32" else {"backend": way}))
    assert_same(source, labels, net=net)
    with pytest.raises(BadInput):
        net.transform([1.5])


def scripted(source: Any, path: Path) -> Any:
    windtunnel.compile(source).export(path, format="torchscript")
    return torch.jit.load(path)


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is:DeprecationWarning")
def test_a_torchscript_file_of_texts(tmp_path: Path) -> None:
    source, nothing = LabelEncoder().fit(["b", "a", "c"]), torch.zeros(2, 0)
    program = scripted(source, tmp_path / "net.ts")
    assert program(nothing, [["c", "a"]]).tolist() == source.transform(["c", "a"]).tolist()
    for strange in ("zz", None):
        with pytest.raises(torch.jit.Error, match="rejects"):
            program(nothing, [["c", strange]])


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is:DeprecationWarning")
def test_a_torchscript_file_of_numbers(tmp_path: Path) -> None:
    source = LabelBinarizer(neg_label=-1).fit([1, 2, 3])
    program, rows = scripted(source, tmp_path / "net.ts"), [2.0, 9.0]
    assert program(torch.tensor(rows)[:, None], []).tolist() == source.transform(rows).tolist()
    for strange in (1.5, np.inf, -np.inf, np.nan, 1e300):
        with pytest.raises(torch.jit.Error, match="rejects|takes no numbers that are not whole"):
            program(torch.tensor([[strange]], dtype=torch.float64), [])


def test_indicators_are_a_table_that_can_be_trained() -> None:
    net = windtunnel.translate(LabelBinarizer().fit(["a", "b", "c"]))
    (rows,) = net.parameters()
    assert rows.requires_grad and rows.shape == (5, 3)
    with torch.no_grad():
        rows.mul_(0.25)
    assert net.transform(["b"]).tolist() == [[0, 0.25, 0]]


SETS: dict[str, Any] = {
    "lists": [["b", "a"], [], ["c", "c"]],
    "sets": [{"a"}, {"b", "c"}],
    "tuples in a Series": pd.Series([("a", "b"), ("c",)], index=[4, 2]),
    "numbers": [[1, 2], [3]],
}


@pytest.mark.parametrize("options", [{}, {"sparse_output": True}, {"classes": ["c", "b", "a", 3, 2, 1]}], ids=str)
@pytest.mark.parametrize("name", SETS)
def test_sets_of_labels(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    rows = SETS[name]
    source = MultiLabelBinarizer(**options).fit(rows)
    net = windtunnel.compile(source)
    assert_same(source, rows, net=net)
    net.save(tmp_path / "net")
    assert_same(source, rows, net=windtunnel.load(tmp_path / "net", host=source))


def test_unknown_labels_in_sets_are_left_out_with_the_sources_warning() -> None:
    source = MultiLabelBinarizer().fit([["a", "b"]])
    with pytest.warns(UserWarning, match=r"unknown class\(es\) \['zz'\] will be ignored"):
        given = windtunnel.compile(source).transform([["b", "zz"], ["zz"]])
    assert given.tolist() == [[0, 1], [0, 0]]


@pytest.mark.parametrize("rows", [["ab", "b"], np.array([["a"], ["b"]]), [1, 2], [None]], ids=repr)
def test_what_is_no_set_of_labels_is_rejected(rows: Any) -> None:
    with pytest.raises(BadInput, match="rejects these rows"):
        windtunnel.compile(MultiLabelBinarizer().fit([["a", "b"]])).transform(rows)
