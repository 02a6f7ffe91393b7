"""Changed files are read to the same end or rejected by an error of ours: artefacts, exports and checkpoints.

``make fuzz-files`` changes 50,000 files and lets none take more than five seconds of processor time.
"""

from __future__ import annotations

import os
import time
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
import pytest
import torch
from c_library import CLibrary
from export_cases import PIPELINES, SUFFIX, frame, rows_for, small, target, translated
from file_mutations import changed_artefact, changed_bytes, changed_checkpoint, changed_onnx
from sklearn.decomposition import NMF
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC
from small_net import QUICK, TASKS, SmallNet, finetune, rows

import windtunnel
from windtunnel.errors import BadFile, WindTunnelError
from windtunnel.export import serving
from windtunnel.modules.trees import LeafOneHot

FILES = int(os.environ.get("WINDTUNNEL_FUZZ_FILES", "0"))
LONGEST_SECONDS = 5.0 if FILES else float("inf")
TEXTS = [f"{first} {second}" for first in ("one", "two", "red") for second in ("alpha", "beta yes", "gamma")]
NUMBERS = frame()[["size", "code"]]


def _with_residual() -> windtunnel.Translation:
    rows = frame()
    labels = np.where(target(rows) > 0, "yes", "no")
    net = translated("logistic")
    net.fit((rows, labels), (rows, labels), epochs=1, progress=False)
    return net


def _compiled(*steps: Any, X: Any, y: Any) -> Callable[[], windtunnel.Translation]:
    return lambda: windtunnel.compile(make_pipeline(*steps).fit(X, y))


NETS: dict[str, tuple[Callable[[], windtunnel.Translation], Any]] = {
    **{
        name: (lambda name=name: translated(name), rows_for(name))
        for name in ("logistic", "lightgbm_categories", "lightgbm_multiclass", "hashing")
    },
    **{
        name: (lambda name=name: windtunnel.compile(PIPELINES[name]()), rows_for(name))
        for name in ("one_vs_rest", "leaves", "transformer")
    },
    "residual model": (_with_residual, frame(30)),
    "texts": (
        _compiled(TfidfVectorizer(), NMF(2), LogisticRegression(), X=TEXTS, y=["yes" in text for text in TEXTS]),
        TEXTS,
    ),
    "neighbours": (_compiled(KNeighborsClassifier(), X=NUMBERS, y=NUMBERS["size"] > 0), NUMBERS[:20]),
    "votes": (_compiled(SVC(), X=NUMBERS, y=pd.cut(NUMBERS["size"], 3, labels=False)), NUMBERS[:20]),
}


@cache
def content(name: str, folder: Path) -> bytes:
    path = folder / "good"
    NETS[name][0]().save(path)
    return path.read_bytes()


def fuzz(
    name: str,
    path: Path,
    data: bytes,
    change: Callable[[bytes, np.random.Generator], bytes],
    use: Callable[[Path], Any],
    errors: tuple[type[Exception], ...],
    count: int,
) -> None:
    """Change a file many times and use each; any error but these is a failure that names the seed."""
    for seed in range(count):
        random = np.random.default_rng([crc32(name.encode()), seed])
        path.write_bytes(change(data, random))
        start = time.process_time()
        try:
            use(path)
        except errors as error:
            assert len(str(error)) < 5000
        except Exception as error:
            raise AssertionError(f"{name}: the changed file of seed {seed} raises {type(error).__name__}") from error
        assert time.process_time() - start < LONGEST_SECONDS, f"{name}, seed {seed}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NETS)
def test_changed_artefacts(name: str, tmp_path: Path, folder: Path) -> None:
    def use(path: Path) -> None:
        net = windtunnel.load(path)
        for method in ("scores", *net.head.methods):
            getattr(net, method)(NETS[name][1])

    count = FILES // len(NETS) or 180
    fuzz(name, tmp_path / "net", content(name, folder), changed_artefact, use, (WindTunnelError,), count)


EXPORTED = {
    "onnx": (changed_onnx, 60),
    "torchscript": (changed_bytes, 30),
    "exported": (changed_bytes, 10),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("format", EXPORTED)
def test_changed_exports(format: str, tmp_path: Path, folder: Path) -> None:
    small(format, folder)
    path = tmp_path / f"net{SUFFIX[format]}"
    data = (folder / path.name).read_bytes()
    columns = rows_for("logistic").to_dict("list")
    change, count = EXPORTED[format]

    def use(path: Path) -> None:
        model = serving.load(path)  # programs are not trusted, and not run
        if "predict" in model.facts["outputs"]:
            model.predict(columns)

    fuzz(format, path, data, change, use, (ValueError,), FILES // 10 or count)


HOSTILE_NUMBERS = [
    0.0,
    -0.0,
    5e-324,
    1e-310,
    1e308,
    -1e308,
    3.5e38,
    np.nan,
    np.inf,
    -np.inf,
    2.0**53,
    2.0**63,
    0.1,
    7.5,
]
HOSTILE_TEXTS = [None, b"", b"Oslo", b"\xff\xfe", b"\xed\xa0\x80", "東京".encode(), "東京".encode()[:-1], b"x" * 99_999]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", ["logistic", "lightgbm_multiclass", "residual model", "leaves", "transformer", "votes"]
)
def test_hostile_rows_in_c(name: str, tmp_path: Path) -> None:
    """The numbers of the translation, or an error where it raises; ``make native-sanitize`` checks the memory."""
    net, table = NETS[name][0](), NETS[name][1]
    library, random, taken = CLibrary(net, tmp_path), np.random.default_rng(crc32(name.encode())), 0
    method = net.head.methods[0]
    for _ in range(FILES // 10 or 100):
        cells = {
            column: random.choice(HOSTILE_NUMBERS if values.dtype.kind == "f" else np.array(HOSTILE_TEXTS, object))
            for column, values in table.items()
        }
        texts = {name: cell.decode(errors="replace") for name, cell in cells.items() if isinstance(cell, bytes)}
        try:
            expected = getattr(net, method)(_row(cells | texts, table))
        except WindTunnelError:
            with pytest.raises(ValueError):  # noqa: PT011  # of an error code
                getattr(library, method)(pd.DataFrame([cells], dtype=object))
            continue
        output, taken = getattr(library, method)(pd.DataFrame([cells], dtype=object)), taken + 1
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(output, expected, rtol=1e-9, atol=1e-12)
        else:
            assert output.tolist() == expected.tolist()
    assert taken > 20


def _row(cells: dict[str, Any], table: pd.DataFrame) -> pd.DataFrame:
    """A row with the dtypes of a table."""
    return pd.DataFrame({name: pd.Series([cell], dtype=table[name].dtype) for name, cell in cells.items()})


@pytest.mark.filterwarnings("ignore")
def test_changed_checkpoints(tmp_path: Path) -> None:
    finetune(SmallNet(TASKS["binary"]), rows(), checkpoint_dir=tmp_path, **QUICK)
    path = tmp_path / "last.ckpt"

    def use(path: Path) -> None:
        finetune(SmallNet(TASKS["binary"]), rows(), resume_from=path, **QUICK | {"epochs": 4})

    fuzz("checkpoint", path, path.read_bytes(), changed_checkpoint, use, (WindTunnelError,), FILES // 50 or 20)


def test_compressed_metadata_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("net/extra/windtunnel.json", b" " * 10_000_000)
    with pytest.raises(serving.BadModelFile, match="its metadata is compressed"):
        serving.load(path)


def test_leaves_beyond_their_columns_are_rejected() -> None:
    """C writes to the column that a leaf's number names."""
    (leaves,) = [step.module for step in NETS["leaves"][0]().program.steps if isinstance(step.module, LeafOneHot)]
    for number in (leaves.columns, -1, float("nan")):
        tensors = {**leaves.state_dict(), "leaf_value": torch.full_like(leaves.leaf_value, number)}
        with pytest.raises(BadFile, match="leaves whose numbers are not 0 to"):
            leaves.rebuild(tensors, leaves.facts())
