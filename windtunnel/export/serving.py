"""Score raw rows with a file that ``export`` wrote: this one file is all that a server needs beside torch.

Copy it next to the model (for a ``.onnx`` file, onnxruntime and NumPy are needed, and no torch)::

    import serving

    model = serving.load("model.pt2", trusted=True)
    model.predict_proba({"age": [31.0, None], "city": ["Oslo", None]})

Whatever the format, rows are a mapping of column name to values (a dict of lists or arrays, a DataFrame) or a table of
Polars or Arrow, and the same mistakes raise the same errors.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import warnings
import zipfile
from array import array
from collections.abc import Iterator, Mapping
from numbers import Integral
from pathlib import Path
from typing import Any

MEMBER = "extra/windtunnel.json"
MISSING_IN_ONNX = "<missing>"
UNKNOWN_IN_ONNX = "\ue000unknown"
"""What an ONNX file is given in the place of an unknown text that it would take for a missing one."""
NONE = "\ue000None"
"""The text that stands for None where it is a category of its own."""
FEW = 256
"""Rows up to which to look at each text is faster than to have pandas number them."""


Rows = Any
"""A mapping of column name to values, or a table of Polars or Arrow."""


class BadRows(ValueError):
    """Rows that a model cannot take."""


def load(path: str | Path, *, trusted: bool = False) -> Model:
    """Open a model.

    Parameters
    ----------
    path : path
        A file that ``net.export`` wrote, in any format.
    trusted : bool
        Whether you know where it comes from. TorchScript and ``.pt2`` files are programs, which run as they are
        opened; ONNX files are data.

    Raises
    ------
    ValueError
        The file holds a program and is not trusted, or is none of these files.
    """
    kind = _format(Path(path))
    if kind == "onnx":
        return _onnx(Path(path))
    if not trusted:
        raise ValueError(
            f"{str(path)!r} holds a program ({kind}), which could do anything on this machine; if you know who made "
            "it, load it with trusted=True. An ONNX file holds none."
        )
    return _torchscript(Path(path)) if kind == "torchscript" else _package(Path(path), kind)


class Model:
    """What a file answers for raw rows.

    Attributes
    ----------
    number_columns, string_columns : list of str
        The columns that it reads; numbers are None or NaN where missing, strings None or NaN.
    classes : list of str
        The labels as text, in the order of the probabilities; empty where there are none.
    facts : dict
        What the file says of itself: format, version of torch, device, outputs.
    """

    def __init__(self, facts: dict[str, Any], run: Any) -> None:
        self.facts, self._run = facts, run
        self.number_columns: list[str] = facts["number_columns"]
        self.string_columns: list[str] = facts["string_columns"]
        self.classes: list[str] = facts["classes"]
        self._none_columns: list[str] = facts.get("none_columns", [])
        self._told_by_text: list[str] = facts.get("told_by_text", [])

    def scores(self, rows: Rows) -> Any:
        """Raw scores ``[B, K]``, or the columns of a transformer."""
        return self._answer("scores", rows)

    def predict_proba(self, rows: Rows) -> Any:
        """Probabilities ``[B, classes]``."""
        return self._answer("predict_proba", rows)

    def predict(self, rows: Rows) -> Any:
        """The position in ``classes`` of each row's label, ``[B]``, or a regressor's values."""
        return self._answer("predict", rows)

    def _answer(self, method: str, rows: Rows) -> Any:
        if method not in self.facts["outputs"]:
            raise AttributeError(f"this model has no {method}; it has {', '.join(self.facts['outputs'])}")
        numbers, strings = self._columns(rows)
        scores, answer = self._run(method, numbers, strings)
        if self.facts["task"] != "transform" and (failed := _no_numbers(scores)):
            raise BadRows(
                f"{failed} of {len(scores)} rows have no finite score: a missing or infinite number reached a step "
                f"that takes none, or an encoder rejects a category; read are {self.number_columns} and "
                f"{self.string_columns}"
            )
        return answer

    def _columns(self, rows: Rows) -> tuple[list[Any], list[Texts]]:
        """Check the columns and take those that are read."""
        wanted = [*self.number_columns, *self.string_columns]
        names = _names(rows, wanted)
        given = [str(name) for name in names]
        if missing := [name for name in wanted if name not in given]:
            raise BadRows(f"columns missing: {missing}; given: {given}")
        named = dict(zip(given, names, strict=True))
        if len(named) < len(given) and (twice := [name for name in wanted if given.count(name) > 1]):
            raise BadRows(f"columns given twice: {twice}; each name must be there once, and 1 is the name '1'")
        numbers = [_numbers(name, rows[named[name]]) for name in self.number_columns]
        # Arrow has one kind of missing text, which is pandas' NaN.
        nones = [] if hasattr(rows, "to_pylist") else self._none_columns
        strings = [
            _strings(name, rows[named[name]], NONE if name in nones else None, told_by_text=name in self._told_by_text)
            for name in self.string_columns
        ]
        lengths = dict(zip(wanted, [*map(len, numbers), *map(len, strings)], strict=True))
        if len(set(lengths.values())) > 1:
            raise BadRows(f"columns of different lengths: {lengths}")
        if not wanted:
            raise BadRows("this model reads no column, so that rows do not tell how many there are")
        return numbers, strings


def _names(rows: Rows, wanted: list[str]) -> list[Any]:
    """The names of the columns of a mapping, or of a table of Arrow or Polars."""
    names = rows.keys() if hasattr(rows, "keys") else getattr(rows, "column_names", getattr(rows, "columns", None))
    if names is None:
        raise BadRows(f"rows given as {type(rows).__name__}; give a mapping of column name to values: {wanted}")
    return list(names)


class Texts:
    """A column of texts, each of which stands in it once.

    Attributes
    ----------
    distinct : list of str or None
        The texts in the order in which they come first, None where one is missing.
    at : buffer of int64
        For each row the position of its text in ``distinct``; negative ones count from the end.
    """

    def __init__(self, distinct: list[str | None], at: Any) -> None:
        self.distinct, self.at = distinct, at

    def __len__(self) -> int:
        return len(self.at)

    def listed(self) -> list[str | None]:
        """The text of each row."""
        return [self.distinct[at] for at in self.at.tolist()]


def _numbers(name: str, column: Any) -> Any:
    """A buffer of float64, NaN where a number is missing."""
    if (held := _plain(column)) is not None:
        return held.astype("float64")
    values = _listed(name, column)
    kinds = set(map(type, values))
    if odd := {kind for kind in kinds if issubclass(kind, str | bytes) or not _is_number(kind)}:
        value = next(value for value in values if type(value) in odd)
        raise BadRows(f"column {name!r} holds {value!r}; numbers are read there, None or NaN where missing")
    if missing := {kind for kind in kinds if _is_none(kind)}:
        values = [math.nan if type(value) in missing else value for value in values]
    return array("d", values if kinds <= {float, int, bool} | missing else map(float, values))


def _strings(name: str, column: Any, none: str | None, told_by_text: bool = False) -> Texts:
    """Texts, None where missing; ``none`` for None. Whole numbers are texts where these alone tell categories."""
    dtype = getattr(column, "dtype", None)
    # Of pandas: categories are numbered already, texts of Arrow without making Python's of each.
    numbered = type(dtype).__name__ == "CategoricalDtype" or getattr(dtype, "storage", None) == "pyarrow"
    if numbered and len(column) > FEW:
        at, values = column.factorize()  # in the order of the rows, what is missing at -1
        distinct = [_text(name, value, none, told_by_text) for value in values.tolist()]
        return Texts(distinct + [None] * bool((at < 0).any()), at.astype("int64"))
    values = _listed(name, column)
    if not {*map(type, values)} <= {str, float, type(None)}:  # others may not tell which are the same
        return Texts([_text(name, value, none, told_by_text) for value in values], array("q", range(len(values))))
    place = {value: at for at, value in enumerate(dict.fromkeys(values))}
    return Texts(
        [_text(name, value, none, told_by_text) for value in place], array("q", map(place.__getitem__, values))
    )


def _text(name: str, value: Any, none: str | None, told_by_text: bool) -> str | None:
    if isinstance(value, str):
        if "\0" in value:
            raise BadRows(f"column {name!r} holds {value!r}, with a NUL in it, at which some runtimes cut a text")
        return value
    if told_by_text and isinstance(value, Integral):
        return str(int(value))
    if not (_is_none(type(value)) or (isinstance(value, float) and math.isnan(value))):
        raise BadRows(f"column {name!r} holds {value!r}; texts are read there, None or NaN where missing")
    return none if value is None else None


def _listed(name: str, column: Any) -> list[Any]:
    if isinstance(column, str | bytes) or not hasattr(column, "__len__"):
        raise BadRows(f"column {name!r} is a single {type(column).__name__}; give a list with one value per row")
    # Of a table or a dict, a list would hold the names.
    if len(getattr(column, "shape", (0,))) != 1 or isinstance(column, Mapping):
        raise BadRows(
            f"column {name!r} is a {type(column).__name__}, no single column; give a list or an array of one "
            "dimension, with one value per row"
        )
    if hasattr(column, "to_pylist"):  # Arrow's
        return list(column.to_pylist())
    return list(column.tolist() if hasattr(column, "tolist") else column)


def _plain(column: Any) -> Any:
    """The NumPy array of real numbers that a column is, or a pandas column has; None where it is something else."""
    numpy = sys.modules.get("numpy")  # a column of NumPy's own type brings it along
    if numpy is None or not isinstance(getattr(column, "dtype", None), numpy.dtype):
        return None
    held = column.to_numpy() if hasattr(column, "to_numpy") else column
    plain = type(held) in (numpy.ndarray, numpy.memmap) and held.dtype.kind in "fiub" and held.dtype.itemsize <= 8
    return held if plain and held.ndim == 1 else None


def _is_none(kind: type) -> bool:
    """Whether a type has one value, which stands for a missing one."""
    return kind is type(None) or kind.__name__ == "NAType"


def _is_number(kind: type) -> bool:
    return _is_none(kind) or hasattr(kind, "__float__")


def _no_numbers(scores: Any) -> int:
    """How many rows of an array or tensor hold NaN, which stands for what is rejected; infinity is an answer."""
    numbers = scores == scores
    return 0 if numbers.all() else len(scores) - int(numbers.all(1).sum())


def _slices(facts: Mapping[str, Any], rows: int) -> Iterator[slice]:
    """Rows that are scored at once, which bounds the memory that a graph takes; at least one slice."""
    size = facts["rows_at_once"] or max(rows, 1)
    for start in range(0, max(rows, 1), size):
        yield slice(start, start + size)


# One function for each kind of file.


def _format(path: Path) -> str:
    with open(path, "rb") as file:
        start = file.read(4)
    if start[:2] == b"PK":
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if facts := [name for name in names if name.endswith(MEMBER)]:
                return str(json.loads(archive.read(facts[0]))["format"])
            if any(name.endswith("constants.pkl") for name in names):
                return "torchscript"
    elif path.suffix == ".onnx":
        return "onnx"
    raise ValueError(f"{str(path)!r} is no file that export wrote as torchscript, onnx, exported or aoti")


def _onnx(path: Path) -> Model:
    import numpy as np
    import onnxruntime  # type: ignore[import-not-found,unused-ignore]

    options = onnxruntime.SessionOptions()
    # Other optimizations keep float64 factors as float32.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    # Tensors in other files, which are looked for in a folder of this name, are rejected: it is that of a file.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.resolve()))
    session = onnxruntime.InferenceSession(
        path.read_bytes(),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["NoopElimination"],  # which takes a factor for 1 where float32 does
    )
    described = session.get_modelmeta().custom_metadata_map
    if "windtunnel" not in described:
        raise ValueError(f"{str(path)!r} is an ONNX model that windtunnel's export did not write")
    facts = json.loads(described["windtunnel"])
    misread = {name: set(facts.get("misread", {}).get(name, [MISSING_IN_ONNX])) for name in facts["string_columns"]}

    def run(method: str, numbers: Any, strings: Any) -> tuple[Any, Any]:
        columns = dict(zip(facts["number_columns"], map(np.asarray, numbers), strict=True))
        for name, texts in zip(facts["string_columns"], strings, strict=True):
            told = [UNKNOWN_IN_ONNX if one in misread[name] else one for one in texts.distinct]
            # Objects: an array of fixed width would be cut at a NUL.
            distinct = np.array([MISSING_IN_ONNX if one is None else one for one in told], dtype=object)
            columns[name] = distinct[np.asarray(texts.at)]
        count = len(next(iter(columns.values())))
        parts = [
            session.run(["scores", method], {name: column[part] for name, column in columns.items()})
            for part in _slices(facts, count)
        ]
        scores, answer = (np.concatenate(blocks) for blocks in zip(*parts, strict=True))
        return scores, answer

    return Model(facts, run)


def _torchscript(path: Path) -> Model:
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.jit", DeprecationWarning)
        program: Any = torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
    outputs = ["scores", *(method for method in ("predict_proba", "predict") if hasattr(program, method))]
    facts = {
        "format": "torchscript",
        "number_columns": list(program.number_columns()),
        "string_columns": list(program.string_columns()),
        "none_columns": list(program.none_columns()) if hasattr(program, "none_columns") else [],
        "told_by_text": _told_by_text(program),
        "classes": list(program.classes()),
        "outputs": outputs,
        "task": "transform" if outputs == ["scores"] else "predict",
    }

    def run(method: str, numbers: Any, strings: Any) -> tuple[Any, Any]:
        count = len((numbers or strings)[0])
        block = _block(numbers, count, torch.float64).t()
        texts = [one.listed() for one in strings]
        try:
            answer = program(block, texts) if method == "scores" else getattr(program, method)(block, texts)
        except (torch.jit.Error, RuntimeError) as error:
            raise BadRows(str(error).strip().splitlines()[-1]) from error
        return answer[:0], answer  # it has checked its scores itself

    return Model(facts, run)


def _told_by_text(program: Any) -> list[str]:
    """The columns of a TorchScript program whose categories all look-ups tell by the hash of their text."""
    by_text: dict[int, bool] = {}
    for lookup in program.texts.children():
        by_text[lookup.place] = by_text.get(lookup.place, True) and lookup.by_hash
    return [name for place, name in enumerate(program.string_columns()) if by_text[place]]


def _package(path: Path, kind: str) -> Model:
    import torch

    with zipfile.ZipFile(path) as archive:
        (member,) = [name for name in archive.namelist() if name.endswith(MEMBER)]
        facts = json.loads(archive.read(member))
    if kind == "aoti":
        if facts["torch"].split("+")[0] != torch.__version__.split("+")[0]:
            raise ValueError(
                f"{str(path)!r} was compiled with torch {facts['torch']}, this is {torch.__version__}; native code "
                "takes the same version. Export it again, or as format='exported'."
            )
        program: Any = torch._inductor.aoti_load_package(str(path))
    else:
        program = torch.export.load(str(path)).module()
    indexes = [{text: 2 + place for place, text in enumerate(one["values"])} for one in facts["categories"]]

    def run(method: str, numbers: Any, strings: Any) -> tuple[Any, Any]:
        texts = dict(zip(facts["string_columns"], strings, strict=True))
        count = len((numbers or strings)[0])
        columns = [texts[one["column"]] for one in facts["categories"]]
        ids = _block([one.at for one in columns], count, torch.int64)
        for row, column, category, index in zip(ids, columns, facts["categories"], indexes, strict=True):
            row.copy_(torch.tensor(_ids(column, category, index), dtype=torch.int64)[row])
        blocks, at = (_block(numbers, count, torch.float64), ids), facts["outputs"].index(method)
        with torch.inference_mode():
            parts = [
                program(*(block[:, part].t().contiguous().to(facts["device"]) for block in blocks))
                for part in _slices(facts, count)
            ]
        scores, answer = (torch.cat([part[place] for part in parts]).cpu() for place in (0, at))
        return scores, answer

    return Model(facts, run)


def _block(columns: list[Any], count: int, dtype: Any) -> Any:
    """Buffers of numbers as a tensor ``[columns, count]``."""
    import torch

    held = bytearray().join(columns)
    return (torch.frombuffer(held, dtype=dtype) if held else torch.empty(0, dtype=dtype)).view(len(columns), count)


def _ids(texts: Texts, category: Mapping[str, Any], index: Mapping[str, int]) -> list[int]:
    """The id of each distinct text: 0 unknown, 1 missing, 2 + i the i-th category, then the buckets of hashed texts."""
    found = [1 if text is None else index.get(text, 0) for text in texts.distinct]
    buckets, first = category["buckets"], 2 + len(category["values"])
    if buckets:
        for at, text in enumerate(texts.distinct):
            if found[at] == 0 and text is not None:
                digest = hashlib.md5(text.encode("utf-8"), usedforsecurity=False).hexdigest()
                found[at] = first + int(digest, 16) % buckets
    if category["rejects_unknown"] and 0 in found:
        text = texts.distinct[found.index(0)]
        raise BadRows(f"column {category['column']!r}: its encoder rejects the category {text}")
    if category["rejects_missing"] and 1 in found:
        raise BadRows(f"column {category['column']!r}: its encoder rejects missing values")
    return found
