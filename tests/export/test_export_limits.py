"""What cannot be exported or loaded: untrusted programs, files of others, steps without a graph, names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
from case import table
from export_cases import FORMATS, SUFFIX, Looping, frame, small, translated, with_host_step
from onnx import helper, numpy_helper
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    OneHotEncoder,
    StandardScaler,
)

import windtunnel
from windtunnel.errors import BadFile, InvalidOption, UnfaithfulOption
from windtunnel.export import serving
from windtunnel.export.limits import LIMITS


@pytest.mark.parametrize("format", ["torchscript", "exported"])
def test_programs_have_to_be_trusted(format: str, folder: Path) -> None:
    small(format, folder)
    with pytest.raises(ValueError, match=rf"holds a program \({format}\).*trusted=True"):
        serving.load(folder / f"net{SUFFIX[format]}")


@pytest.mark.parametrize("format", FORMATS)
def test_what_was_exported_is_no_artefact(format: str, folder: Path) -> None:
    what = {"torchscript": "a TorchScript file", "onnx": "an ONNX file", "exported": r"a file of torch\.export"}
    small(format, folder)
    with pytest.raises(BadFile, match=rf"{what[format]}, which windtunnel\.load does not read.*serving\.load\(path"):
        windtunnel.load(folder / f"net{SUFFIX[format]}")


def test_files_of_others_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"nothing")
    with pytest.raises(Exception, match="Protobuf|protobuf|INVALID"):
        serving.load(tmp_path / "net.onnx")
    (tmp_path / "net.bin").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="no file that export wrote"):
        serving.load(tmp_path / "net.bin")
    net = translated("logistic")
    net.save(tmp_path / "net.windtunnel")
    with pytest.raises(ValueError, match="no file that export wrote.*windtunnel.load reads"):
        serving.load(tmp_path / "net.windtunnel")


@pytest.mark.parametrize("place", ["weights", "../weights"])
def test_onnx_files_that_point_at_others_are_rejected(place: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, tmp_path.parent):
        (folder / "weights").write_bytes(np.zeros(4).tobytes())
    weights = numpy_helper.from_array(np.zeros(4), "weights")
    weights.ClearField("raw_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    weights.external_data.add(key="location", value=place)
    at, found = (helper.make_tensor_value_info(name, kind, [4]) for name, kind in (("at", 7), ("found", 11)))
    gather = helper.make_node("Gather", ["weights", "at"], ["found"])
    graph = helper.make_graph([gather], "net", [at], [found], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(Exception, match="External data path"):
        serving.load(tmp_path / "net.onnx")


def test_an_onnx_file_is_whole(folder: Path) -> None:
    small("onnx", folder)
    model = onnx.load(folder / "net.onnx", load_external_data=False)
    onnx.checker.check_model(model, full_check=True)
    assert not any(one.data_location or one.external_data for one in model.graph.initializer)
    assert {one.domain for one in model.opset_import} == {"", "ai.onnx.ml"}
    assert [one.name for one in model.graph.input] == ["size", "price", "code", "city"]
    assert [one.name for one in model.graph.output] == ["scores", "predict_proba", "predict"]
    named = [*model.graph.input, *model.graph.output]
    assert {one.type.tensor_type.shape.dim[0].dim_param for one in named} == {"rows"}


@pytest.mark.parametrize("format", ["onnx", "exported"])
def test_host_steps_are_rejected_by_name(format: str, tmp_path: Path) -> None:
    net = windtunnel.translate(with_host_step(), calibrate=frame())
    with pytest.raises(UnfaithfulOption, match=r"'columns.custom' \(Custom\) stayed on the host"):
        net.export(tmp_path / "net", format=format)
    assert not list(tmp_path.iterdir())


def test_steps_without_a_graph_are_rejected_by_name(tmp_path: Path, capfd: Any) -> None:
    net = windtunnel.compile(StandardScaler().fit(np.random.default_rng(0).random((30, 4))))
    net.program.steps[0].module = Looping()
    with pytest.raises(UnfaithfulOption, match=r"cannot take a graph of step 'StandardScaler' \(Looping\)"):
        net.export(tmp_path / "net.pt2", format="exported")
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


def test_the_documentation_has_the_table_of_limits() -> None:
    page = (Path(windtunnel.__file__).parents[1] / "docs" / "export.md").read_text(encoding="utf-8")
    rows = [f"| {one.what} | {', '.join(one.formats)} | {one.because} |" for one in LIMITS]
    assert "\n".join(rows) in page


def test_names_that_onnx_cannot_hold(tmp_path: Path) -> None:
    rows = table()[["age"]].rename(columns={"age": "scores"})
    net = windtunnel.compile(LogisticRegression().fit(rows, rows["scores"] > 40))
    with pytest.raises(UnfaithfulOption, match="columns called 'scores': ONNX has one space of names"):
        net.export(tmp_path / "net.onnx", format="onnx")
    rows = pd.DataFrame({"a": ["<missing>", "x"] * 5})
    net = windtunnel.compile(make_pipeline(OneHotEncoder(), LogisticRegression()).fit(rows, [0, 1] * 5))
    with pytest.raises(UnfaithfulOption, match="column 'a' has the category '<missing>'"):
        net.export(tmp_path / "net.onnx", format="onnx")


@pytest.mark.parametrize("format", FORMATS)
def test_texts_that_are_no_unicode(format: str, tmp_path: Path) -> None:
    rows = pd.DataFrame({0: ["a", "\udc00"] * 5}, dtype=object).set_axis(pd.Index(["\ud800"], dtype=object), axis=1)
    net = windtunnel.compile(make_pipeline(OneHotEncoder(), LogisticRegression()).fit(rows, ["no", "\ud801"] * 5))
    with pytest.raises(UnfaithfulOption, match=r"'\\ud800', '\\ud801', '\\udc00' are no valid Unicode text: a file"):
        net.export(tmp_path / "net", format=format)
    assert not list(tmp_path.iterdir())


def test_names_of_files_and_formats(tmp_path: Path) -> None:
    net = translated("logistic")
    with pytest.raises(InvalidOption, match=r"\.pt2 is what files of 'exported' are called; name the file \.onnx"):
        net.export(tmp_path / "net.pt2", format="onnx")
    with pytest.raises(InvalidOption, match=r"\.windtunnel is what files of 'save' are called"):
        net.export(tmp_path / "net.windtunnel", format="onnx")
    with pytest.raises(InvalidOption, match="name of the header, which is written too; name the file .c"):
        net.export(tmp_path / "net.h", format="c")
    with pytest.raises(InvalidOption, match="did you mean exported"):
        net.export(tmp_path / "net", format="export")


def test_none_that_is_a_category_of_one_step_alone_is_rejected(tmp_path: Path) -> None:
    rows = pd.DataFrame({"c": pd.Series(["x", "y", None, np.nan] * 30, dtype=object)})
    fill = SimpleImputer(strategy="constant", fill_value="miss")
    one = make_pipeline(fill, OneHotEncoder(handle_unknown="ignore"))
    two = OneHotEncoder(handle_unknown="ignore", categories=[["x", "y"]])
    columns = make_column_transformer((one, ["c"]), (two, ["c"]))
    source = make_pipeline(columns, Ridge(alpha=1e-3)).fit(rows, [0.0, 1.0, 100.0, -100.0] * 30)
    net = windtunnel.compile(source)
    np.testing.assert_allclose(net.predict(rows), source.predict(rows), rtol=1e-9)
    for suffix in (".onnx", ".ts", ".pt2", ".c"):
        with pytest.raises(UnfaithfulOption, match="missing value, in columns 'c' is a category in one place"):
            net.export(tmp_path / f"net{suffix}")
