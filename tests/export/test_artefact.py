from __future__ import annotations

import dataclasses
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from export_cases import PIPELINES, fitted, frame, rows_for, target, translated, with_host_step
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import windtunnel
from windtunnel.errors import BadFile, InvalidOption, UnfaithfulOption
from windtunnel.export.artefact import container
from windtunnel.export.artefact.layout import SCHEMA
from windtunnel.modules.base import MODULES
from windtunnel.modules.columns.affine import Affine


@pytest.mark.parametrize("name", PIPELINES)
def test_scores_of_a_loaded_translation_are_the_same_bits(name: str, tmp_path: Path) -> None:
    net = translated(name)
    net.save(tmp_path / "net")
    loaded = windtunnel.load(tmp_path / "net")
    rows = rows_for(name)
    assert torch.equal(loaded.scores(rows), net.scores(rows))
    for method in net.head.methods:
        given, expected = getattr(loaded, method)(rows), getattr(net, method)(rows)
        assert given.dtype == expected.dtype
        np.testing.assert_array_equal(given, expected)
    assert _flags(loaded) == _flags(net)
    assert loaded.fidelity == net.fidelity
    assert loaded.origins == net.origins
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "net").read_bytes()


@pytest.mark.parametrize("level", ["L0", "L1", "L2", "L3", "L4"])
def test_levels_come_back(level: str, tmp_path: Path) -> None:
    net = translated("lightgbm_binary", level=level)
    net.save(tmp_path / "net")
    assert _flags(windtunnel.load(tmp_path / "net")) == _flags(net)


def test_exact_translations_come_back_exact(tmp_path: Path) -> None:
    net = windtunnel.compile(fitted("lightgbm_multiclass"))
    net.save(tmp_path / "net")
    loaded = windtunnel.load(tmp_path / "net")
    assert torch.equal(loaded.scores(frame()), net.scores(frame()))
    assert not any(_flags(loaded).values())


def test_frozen_parameters_stay_frozen(tmp_path: Path) -> None:
    net = translated("logistic")
    net.program.steps[-1].module.bias.requires_grad_(False)
    net.save(tmp_path / "net")
    assert _flags(windtunnel.load(tmp_path / "net")) == _flags(net)


def test_fitting_goes_on_after_loading(tmp_path: Path) -> None:
    net, rows = translated("logistic"), frame()
    labels = np.where(target(rows) > 0, "yes", "no")
    options: dict[str, Any] = {"epochs": 2, "learning_rate": 0.01, "progress": False, "batch_size": 50}
    net.fit((rows, labels), (rows, labels), **options)
    net.save(tmp_path / "net")
    loaded = windtunnel.load(tmp_path / "net")
    assert str(loaded.report()) == str(net.report())
    assert all(
        torch.equal(loaded.initial_weights[name].nan_to_num(), value.nan_to_num())
        for name, value in net.initial_weights.items()
    )
    for one in (net, loaded):
        one.fit((rows, labels), (rows, labels), **options)
    assert torch.equal(loaded.scores(rows), net.scores(rows))
    loaded.save(tmp_path / "again")
    assert windtunnel.load(tmp_path / "again").report().rows == net.report().rows


def test_a_default_fit_finds_the_trees_of_the_source_in_the_file(tmp_path: Path) -> None:
    net, rows = translated("lightgbm_binary"), frame()
    labels = np.where(target(rows) > 0, "yes", "no")
    net.save(tmp_path / "net")
    loaded = windtunnel.load(tmp_path / "net")
    assert net.exact_modules and loaded.exact_modules.keys() == net.exact_modules.keys()
    for one in (net, loaded):
        one.fit((rows, labels), (rows, labels), epochs=2, batch_size=50, progress=False)
        one.save(tmp_path / "tuned")
        assert not one.exact_modules and not windtunnel.load(tmp_path / "tuned").exact_modules
    assert torch.equal(loaded.scores(rows), net.scores(rows)) and loaded.history.start == net.history.start


def test_labels_that_json_cannot_hold_are_rejected(tmp_path: Path) -> None:
    net = translated("logistic")
    net.head = dataclasses.replace(net.head, classes=np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]"))
    with pytest.raises(UnfaithfulOption, match="labels of dtype datetime64.*Convert y before fitting"):
        net.save(tmp_path / "net")


def test_modules_outside_the_table_are_rejected(tmp_path: Path) -> None:
    class Other(Affine):
        pass

    net = translated("logistic")
    step = next(step for step in net.program.steps if type(step.module) is Affine)
    step.module = Other(*(getattr(step.module, name) for name in ("scale", "shift", "center", "unit")))
    net.save(tmp_path / "net")
    del MODULES["Other"]
    with pytest.raises(UnfaithfulOption, match="Other, which is not in the table"):
        net.save(tmp_path / "net")
    with pytest.raises(BadFile, match="unknown module 'Other'"):
        windtunnel.load(tmp_path / "net")


# Steps on the host


def test_host_steps_are_taken_from_the_pipeline(tmp_path: Path) -> None:
    pipeline, rows = with_host_step(), frame()
    net = windtunnel.translate(pipeline, calibrate=rows)
    net.save(tmp_path / "net")
    loaded = windtunnel.load(tmp_path / "net", host=pipeline)
    assert torch.equal(loaded.scores(rows), net.scores(rows))
    assert [(host.name, host.columns, host.reason) for host in loaded.hosts] == [
        (host.name, host.columns, host.reason) for host in net.hosts
    ]


def test_host_steps_that_are_not_given_are_named(tmp_path: Path) -> None:
    pipeline, rows = with_host_step(), frame()
    windtunnel.translate(pipeline, calibrate=rows).save(tmp_path / "net")
    with pytest.raises(InvalidOption, match=r"'columns.custom' \(Custom\).*load\(path, host=pipeline\)"):
        windtunnel.load(tmp_path / "net")
    other = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows[["size"]], rows["size"] > 0)
    with pytest.raises(InvalidOption, match="fitted on other columns"):
        windtunnel.load(tmp_path / "net", host=other)
    numbers = make_column_transformer((StandardScaler(), ["size"]), ("drop", ["price", "city", "code"]))
    other = make_pipeline(numbers, LogisticRegression()).fit(rows, rows["size"] > 0)
    with pytest.raises(InvalidOption, match="has no step 'columns.custom' of class Custom"):
        windtunnel.load(tmp_path / "net", host=other)


# Writing


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = translated("logistic")
    net.save(tmp_path / "net")
    before = (tmp_path / "net").read_bytes()

    def fails(*args: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="no space left"):
        translated("ridge").save(tmp_path / "net")
    assert (tmp_path / "net").read_bytes() == before
    assert os.listdir(tmp_path) == ["net"]


# Bad files


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("good") / "net"
    translated("lightgbm_binary", calibrate=None).save(path)
    return path


def test_a_changed_byte_is_noticed_or_means_nothing(good: Path, tmp_path: Path) -> None:
    data, expected = good.read_bytes(), windtunnel.load(good).scores(frame())
    random = np.random.default_rng(0)
    header = int.from_bytes(data[:8], "little")
    structure = np.concatenate([np.arange(40), np.arange(header - 290, header + 40), random.integers(0, len(data), 60)])
    path = tmp_path / "net"
    noticed = 0
    for position in structure:
        changed = bytearray(data)
        changed[position] ^= 1 << int(random.integers(8))
        path.write_bytes(changed)
        try:
            loaded = windtunnel.load(path)
        except BadFile:
            noticed += 1
        else:  # white space that pads the header
            assert torch.equal(loaded.scores(frame()), expected)
    assert noticed > len(structure) / 2


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.9, 0.9999])
def test_a_file_cut_short_is_bad(good: Path, tmp_path: Path, share: float) -> None:
    data = good.read_bytes()
    (tmp_path / "net").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(BadFile, match="net.*damaged, cut short, or no windtunnel artefact"):
        windtunnel.load(tmp_path / "net")


class Bomb:
    def __reduce__(self) -> Any:
        return os.system, ("touch exploded",)


@pytest.mark.parametrize("write", ["pickle", "torch", "text", "empty zip", "empty safetensors", "other safetensors"])
def test_other_files_are_bad_and_run_nothing(write: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "net"
    if write == "pickle":
        path.write_bytes(pickle.dumps(Bomb()))
    elif write == "torch":
        torch.save(Bomb(), path)
    elif write == "text":
        path.write_text("PK" + "hello " * 100)
    elif write.endswith("safetensors"):
        tensors = {"x": torch.zeros(3)} if write.startswith("other") else {}
        path.write_bytes(safetensors.torch.save(tensors, {"windtunnel": "{}"}))
    else:
        zipfile.ZipFile(path, "w").close()
    with pytest.raises(BadFile):
        windtunnel.load(path)
    assert os.listdir(tmp_path) == ["net"]


def test_a_place_where_no_file_can_be_is_named_as_it_was_given(tmp_path: Path) -> None:
    net, nowhere = translated("logistic"), tmp_path / "nowhere" / "net"
    for write in (net.save, partial(net.export, format="torchscript")):
        with pytest.raises(
            FileNotFoundError, match=f"^'{nowhere}' cannot be written: there is no folder '{nowhere.parent}'"
        ):
            write(nowhere)
        with pytest.raises(IsADirectoryError, match=f"Is a directory: '{tmp_path}'$"):
            write(tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        windtunnel.load(tmp_path / "net")


@pytest.mark.parametrize("size", [1 << 62, 200_000_000, 100_000_000])
def test_a_header_larger_than_the_file_is_bad(good: Path, tmp_path: Path, size: int) -> None:
    (tmp_path / "net").write_bytes(size.to_bytes(8, "little") + good.read_bytes()[8:])
    with pytest.raises(BadFile, match="damaged, cut short"):
        windtunnel.load(tmp_path / "net")


@pytest.mark.parametrize("shape", [[1 << 40], [1 << 62, 1 << 62], [-1]])
def test_a_tensor_larger_than_the_file_is_bad(tmp_path: Path, shape: list[int]) -> None:
    entry = {"dtype": "F64", "shape": shape, "data_offsets": [0, 8]}
    header = json.dumps({"__metadata__": {"windtunnel": "{}"}, "weights.x": entry}).encode()
    (tmp_path / "net").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(BadFile, match="damaged, cut short"):
        windtunnel.load(tmp_path / "net")


def test_bytes_after_the_tensors_are_bad(good: Path, tmp_path: Path) -> None:
    (tmp_path / "net").write_bytes(good.read_bytes() + b"more")
    with pytest.raises(BadFile, match="damaged, cut short"):
        windtunnel.load(tmp_path / "net")


def test_a_header_over_its_limit_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "HEADER_BYTES", 1000)
    with pytest.raises(UnfaithfulOption, match="would have .* bytes; an artefact takes at most 1000"):
        translated("lightgbm_binary", calibrate=None).save(tmp_path / "net")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("values", [(b"yes", b"noo"), (b"steps.0", b"steps.9"), (b"Oslo", b"Olso")])
def test_changed_text_is_noticed(good: Path, tmp_path: Path, values: tuple[bytes, bytes]) -> None:
    (tmp_path / "net").write_bytes(good.read_bytes().replace(*values))
    with pytest.raises(BadFile, match="changed after it was written"):
        windtunnel.load(tmp_path / "net")


@pytest.mark.parametrize("digest", [None, torch.zeros(32, dtype=torch.uint8), torch.zeros(32), torch.zeros(0)])
def test_another_hash_is_noticed(good: Path, tmp_path: Path, digest: torch.Tensor | None) -> None:
    text, tensors = container.unpack(good, good.read_bytes())
    stored = {} if digest is None else {container.DIGEST: digest}
    (tmp_path / "net").write_bytes(safetensors.torch.save(tensors | stored, {container.METADATA: text}))
    with pytest.raises(BadFile, match="changed after it was written|damaged, cut short"):
        windtunnel.load(tmp_path / "net")


def test_text_that_is_no_unicode_is_rejected(tmp_path: Path) -> None:
    net = translated("logistic")
    net.head = dataclasses.replace(net.head, classes=np.array(["no", "\ud800"], dtype=object))
    with pytest.raises(UnfaithfulOption, match="no valid Unicode text"):
        net.save(tmp_path / "net")


GRAPH, VOCABULARIES, TENSORS = "graph", "categories", "tensors"


def _forge(good: Path, path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """A file whose hash is right and whose content is not."""
    text, tensors = container.unpack(good, good.read_bytes())
    contents: dict[str, Any] = {
        GRAPH: json.loads(text),
        VOCABULARIES: json.loads(tensors.pop("categories").numpy().tobytes()),
        TENSORS: tensors,
    }
    change(contents)
    graph, categories = (
        content if isinstance(content, bytes) else json.dumps(content).encode()
        for content in (contents[GRAPH], contents[VOCABULARIES])
    )
    written = {**contents[TENSORS], "categories": torch.frombuffer(bytearray(categories), dtype=torch.uint8)}
    path.write_bytes(container.pack(graph.decode(), written))


WEIGHT = "weights.steps.{}.module.{}"


def _step(contents: dict[str, Any], module: str) -> tuple[int, dict[str, Any]]:
    steps = contents[GRAPH]["steps"]
    return next((position, step) for position, step in enumerate(steps) if step["module"] == module)


def _set(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(contents: dict[str, Any]) -> None:
        at: Any = contents
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = to

    return change


def _tensor(module: str, name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[dict[str, Any]], None]:
    def apply(contents: dict[str, Any]) -> None:
        key = WEIGHT.format(_step(contents, module)[0], name)
        contents[TENSORS][key] = change(contents[TENSORS][key]).contiguous()

    return apply


def _fact(module: str, name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda contents: _step(contents, module)[1]["facts"].update({name: value})


def _take(module: str, **values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda contents: _step(contents, module)[1]["takes"][0].update(values)


def _move_exact(to: str) -> Callable[[dict[str, Any]], None]:
    def change(contents: dict[str, Any]) -> None:
        ((position, step),) = contents[GRAPH]["exact"].items()
        contents[GRAPH]["exact"] = {to: step}
        contents[TENSORS] = {
            name.replace(f"exact.{position}.", f"exact.{to}."): value for name, value in contents[TENSORS].items()
        }

    return change


def _without_exact(contents: dict[str, Any]) -> None:
    contents[TENSORS] = {name: one for name, one in contents[TENSORS].items() if not name.startswith("exact.")}


NO_COUNTS = {"counts": False, "counter": None}
FORGED: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "newer schema": (
        _set(GRAPH, "schema_number", to=SCHEMA + 1),
        f"written in schema {SCHEMA + 1}; .* reads schema {SCHEMA}.*needs a newer windtunnel",
    ),
    "older schema": (
        _set(GRAPH, "schema_number", to=SCHEMA - 1),
        f"written in schema {SCHEMA - 1}; .* reads schema {SCHEMA}.*Translate or compile the fitted pipeline again",
    ),
    "another format": (_set(GRAPH, "format", to="wind"), "JSON of the metadata is not what windtunnel writes"),
    "metadata no object": (_set(GRAPH, to=[]), "JSON of the metadata is not what windtunnel writes"),
    "metadata no JSON": (_set(GRAPH, to=b"{"), "JSON of the metadata is not what .* Invalid JSON"),
    "deep JSON": (_set(GRAPH, to=b"[" * 200_000), "JSON of the metadata is not what .* recursion limit"),
    "deep values": (_set(VOCABULARIES, to=b"[" * 500 + b"]" * 500), "JSON of categories is not what"),
    "long number": (_set(GRAPH, to=b"9" * 5000), "JSON of the metadata is not what .* out of range"),
    "no text": (_set(VOCABULARIES, to=b"\xff\xfe"), "JSON of categories is not what"),
    "unknown field": (_set(GRAPH, "code", to="import os"), "code: Extra inputs"),
    "number for a name": (_set(GRAPH, "steps", 0, "name", to=1), "steps.0.name: .*valid string"),
    "text for a number": (_set(GRAPH, "encoder", "width", to="4"), "encoder.width: .*valid integer"),
    "no steps": (_set(GRAPH, "steps", to=[]), "steps: "),
    "import path": (_set(GRAPH, "steps", 0, "module", to="os.system"), "unknown module 'os.system'"),
    "typo in a module": (_set(GRAPH, "steps", 0, "module", to="Afine"), "nearest is 'Affine'"),
    "slot ahead": (_take("SoftTrees", slot=99), "takes from slot 99, which is not before it"),
    "column too far": (_take("SoftTrees", slot=0, columns=[99]), "takes column 99 of"),
    "negative column": (_take("SoftTrees", columns=[-1]), "greater than or equal to 0"),
    "no takes": (lambda contents: _step(contents, "Affine")[1].update(takes=[]), "takes no columns"),
    "fact too many": (_fact("Affine", "path", "/tmp"), "Affine takes"),
    "fact of another type": (_fact("CategoryTable", "trainable", "yes"), "facts of CategoryTable of the wrong type"),
    "fact out of range": (_fact("SoftTrees", "level", "L9"), "no SoftTrees can be made"),
    "tensor too many": (_set(TENSORS, "weights.extra", to=torch.zeros(1)), "differ in .*extra"),
    "tensor of no group": (_set(TENSORS, "extra", to=torch.zeros(1)), "an artefact has the tensors"),
    "tensor missing": (lambda c: c[TENSORS].pop(WEIGHT.format(_step(c, "Affine")[0], "shift")), "Affine takes"),
    "no tensors": (_set(TENSORS, to={}), "takes .*the tensors"),
    "wide scaler": (_tensor("Affine", "scale", lambda t: torch.ones(99)), "do not fit together"),
    "short table": (_tensor("CategoryTable", "rows", lambda t: t[:3]), "do not fit together"),
    "whole numbers": (_tensor("Affine", "scale", lambda t: t.long()), "no Affine can be made"),
    "odd path": (_tensor("SoftTrees", "path", lambda t: t[:, :, :-1]), "do not fit together"),
    "feature too far": (_tensor("SoftTrees", "output", lambda t: t + 7), "do not fit together"),
    "two scores": (_tensor("SoftTrees", "base", lambda t: torch.zeros(7)), "7 scores for 2 classes"),
    "trainable fact": (_set(GRAPH, "trainable", to=["steps.0.module.missing"]), "no such parameters"),
    "unknown link": (_set(GRAPH, "head", "link", to="sigmoit"), "unknown link 'sigmoit': did you mean sigmoid?"),
    "unknown loss": (_set(GRAPH, "head", "loss", to="eval"), "unknown loss 'eval'"),
    "unknown method": (_set(GRAPH, "head", "methods", to=["__del__"]), "unknown methods"),
    "options of the link": (_set(GRAPH, "head", "link_options", to={"out": 1.0}), "does not take"),
    "labels too long": (_set(GRAPH, "head", "classes", "dtype", to="<U99999999"), "classes.*dtype"),
    "labels much wider than their texts": (
        _set(GRAPH, "head", "classes", "dtype", to="<U99999"),
        "labels of dtype <U99999, which have at most",
    ),
    "labels of many targets": (
        _set(GRAPH, "head", "classes", to=[{"dtype": "<U900", "values": [*map(str, range(5000))]}] * 5),
        "labels of more than 67108864 bytes",
    ),
    "wide texts of a method": (_set(GRAPH, "head", "dtypes", to={"predict": "<U99999"}), "dtypes"),
    "labels of objects": (_set(GRAPH, "head", "classes", "dtype", to="O8,O8"), "classes.*dtype"),
    "labels cut": (_set(GRAPH, "head", "classes", "dtype", to="<U1"), "labels that dtype <U1 cannot hold"),
    "labels not of the type": (_set(GRAPH, "head", "classes", "dtype", to="<i8"), "labels that are not of dtype <i8"),
    "task without labels": (_set(GRAPH, "head", "classes", to=None), "task 'binary' without labels"),
    "names too few": (_set(GRAPH, "encoder", "names", to=["size"]), "1 names for 4 columns"),
    "column read too far": (_set(GRAPH, "encoder", "numbers", 0, to=77), "column 77 is read"),
    "categories too few": (_set(VOCABULARIES, "categories", to=[]), "takes column 1 of 0"),
    "negative column of ids": (_set(VOCABULARIES, "categories", 0, "column", to=-1), "negative column"),
    "too many buckets": (
        _set(VOCABULARIES, "categories", 0, "vocabulary", "buckets", to=2**63 - 1),
        "a vocabulary of 9223372036854775807 buckets; at most",
    ),
    "negative buckets": (_set(VOCABULARIES, "categories", 0, "vocabulary", "buckets", to=-1), "negative column"),
    "category twice": (_set(VOCABULARIES, "categories", 0, "vocabulary", "values", to=["a", "a"]), "given twice"),
    "category of a list": (
        _set(VOCABULARIES, "categories", 0, "vocabulary", "values", to=[["a"]]),
        "not what windtunnel writes",
    ),
    "no exact form": (_set(GRAPH, "exact", to={}), "exact and the steps differ in"),
    "no tensors of the exact form": (_without_exact, "takes .*the tensors"),
    "exact form of no step": (_move_exact(to="99"), "exact form of step 99, which is not there"),
    "exact form of another step": (_move_exact(to="0"), "takes from slot .*, which is not before it"),
    "exact form of other columns": (
        lambda contents: next(iter(contents[GRAPH]["exact"].values()))["takes"].pop(),
        "exact form of step ., which .* takes other columns",
    ),
    "exact tensor too many": (_set(TENSORS, "exact.extra", to=torch.zeros(1)), "differ in .*extra"),
    "host columns": (
        _set(GRAPH, "hosts", to=[{**dict.fromkeys(("name", "estimator", "reason"), "x"), "columns": [0], **NO_COUNTS}]),
        "steps on the host write columns",
    ),
}


@pytest.mark.parametrize("forgery", FORGED)
def test_a_forged_file_is_bad(forgery: str, good: Path, tmp_path: Path) -> None:
    change, message = FORGED[forgery]
    _forge(good, tmp_path / "net", change)
    with pytest.raises(BadFile, match=f"(?s)net.*{message}"):
        windtunnel.load(tmp_path / "net")


def test_the_forger_can_write_good_files(good: Path, tmp_path: Path) -> None:
    _forge(good, tmp_path / "net", lambda contents: None)
    assert torch.equal(windtunnel.load(tmp_path / "net").scores(frame()), windtunnel.load(good).scores(frame()))


def _flags(net: windtunnel.Translation) -> dict[str, bool]:
    return {name: parameter.requires_grad for name, parameter in net.named_parameters()}
