"""Score raw rows with a file that ``export`` wrote: this one file is all that a server needs beside torch.

Copy it next to the model (a ``.onnx`` file needs onnxruntime and NumPy, a library compiled from a ``.c`` file needs
NumPy alone; neither needs torch)::

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
import re
import sys
import warnings
import zipfile
from array import array
from collections.abc import Iterator, Mapping
from numbers import Integral
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

MEMBER = "extra/windtunnel.json"
MISSING_IN_ONNX = "<missing>"
UNKNOWN_IN_ONNX = "\ue000unknown"
"""Replaces an unknown text that an ONNX file would take for a missing one."""
NONE = "\ue000None"
"""The text that replaces None in columns where None is a category."""
IR_VERSION = b"\x08"
"""The first byte of an ONNX file, the number of its field ir_version."""
LIBRARIES = (".so", ".dylib", ".dll")
"""Suffixes of shared libraries."""
NO_REAL_NUMBERS = ("datetime64", "timedelta64", "complex64", "complex128", "clongdouble", "complex256")
"""NumPy's types that ``float`` takes though they are no real numbers."""
FEW_ROWS = 256
"""Up to this many rows a Python loop is faster than pandas' ``factorize``."""

Rows = Any
"""A mapping of column name to values, or a table of Polars or Arrow."""


class BadRows(ValueError):
    """Rows that a model cannot take."""

    def __init__(self, message: str) -> None:
        super().__init__(message if len(message) <= 2000 else f"{message[:1000]} ... {message[-1000:]}")


class BadModelFile(ValueError):
    """A file that is damaged, or that ``net.export`` did not write."""


def load(path: str | Path, *, trusted: bool = False) -> Model:
    """A model that scores raw rows with a file.

    Parameters
    ----------
    path : path
        A file that ``net.export`` wrote, in any format, or the shared library of a C file, under the name of that.
    trusted : bool
        Whether you trust the file's origin. TorchScript and ``.pt2`` files and libraries are programs, which run when
        they are loaded; ONNX files are data.

    Raises
    ------
    ValueError
        The file holds a program and is not trusted.
    BadModelFile
        The file is damaged, ``net.export`` did not write it, or it is C source, which is compiled first.
    """
    path = Path(path)
    with open(path, "rb"):  # a file that is not there is no bad file
        pass
    if path.suffix.lower() == ".c":
        compiler = f"cc -O3 -ffp-contract=off -shared -fPIC {path.name} -lm -o {path.stem}.so"
        raise BadModelFile(f"{str(path)!r} is C source, which is compiled first: {compiler}")
    try:
        kind, facts = _format(path)
    except Exception as error:  # zipfile and json have errors of many kinds
        raise _bad(path, error) from error
    if kind != "onnx" and not trusted:
        raise ValueError(
            f"{str(path)!r} holds a program ({kind}), which could do anything on this machine; if you know who made "
            "it, load it with trusted=True. An ONNX file holds none."
        )
    if kind == "aoti" and facts["torch"].split("+")[0] != (version := _torch_version()):
        raise ValueError(
            f"{str(path)!r} was compiled with torch {facts['torch']}, this is {version}; native code takes the same "
            "version. Export it again, or as format='exported'."
        )
    try:
        readers = {"onnx": _load_onnx, "torchscript": _load_torchscript, "c": _load_library}
        model = readers[kind](path) if kind in readers else _load_package(path, facts)
        _check_facts(model.facts)
        return model
    except ImportError:
        raise
    except Exception as error:  # so have the runtimes
        raise _bad(path, error) from error


def _bad(path: Path, error: Exception) -> BadModelFile:
    reason = str(error).strip().partition("\n")[0][:300]
    return BadModelFile(
        f"{str(path)!r} is damaged, or no file that export wrote as torchscript, onnx, exported, aoti or c "
        f"({type(error).__name__}: {reason}). Get the file again, or export it again."
    )


TEXT_LISTS = ("number_columns", "string_columns", "none_columns", "told_by_text", "classes", "outputs")
"""The lists of texts in the metadata of every format."""


def _check_facts(facts: dict[str, Any]) -> None:
    wrong = [name for name in TEXT_LISTS if not isinstance(facts[name], list) or {*map(type, facts[name])} - {str}]
    if wrong or not isinstance(facts["task"], str) or not isinstance(facts.get("rows_at_once", 0), int):
        raise TypeError(f"the metadata has no proper {', '.join(wrong) or 'task or rows_at_once'}")


class Model:
    """Predicts raw rows with a file.

    Attributes
    ----------
    number_columns, string_columns : list of str
        The columns that it reads. Missing numbers and strings are None or NaN.
    classes : list of str
        The labels as text, in the order of the probabilities; empty where there are none.
    facts : dict
        The metadata of the file: format, version of torch, device, outputs.
    """

    def __init__(self, facts: dict[str, Any], run: Any) -> None:
        self.facts, self._run = facts, run
        self.number_columns: list[str] = facts["number_columns"]
        self.string_columns: list[str] = facts["string_columns"]
        self.classes: list[str] = facts["classes"]
        self._none_columns: list[str] = facts["none_columns"]
        self._told_by_text: list[str] = facts["told_by_text"]

    def scores(self, rows: Rows) -> Any:
        """Raw scores ``[B, K]``, or the columns of a transformer."""
        return self._output("scores", rows)

    def predict_proba(self, rows: Rows) -> Any:
        """Probabilities ``[B, classes]``."""
        return self._output("predict_proba", rows)

    def predict(self, rows: Rows) -> Any:
        """Position of each row's label in ``classes``, ``[B]``; values of a regressor."""
        return self._output("predict", rows)

    def _output(self, method: str, rows: Rows) -> Any:
        if method not in self.facts["outputs"]:
            raise AttributeError(f"this model has no {method}; it has {', '.join(self.facts['outputs'])}")
        numbers, strings = self._columns(rows)
        try:
            scores, output = self._run(method, numbers, strings)
        except (BadRows, MemoryError):
            raise
        except Exception as error:  # each runtime has its own
            raise BadRows(str(error).strip().rpartition("\n")[2] or type(error).__name__) from error
        if self.facts["task"] != "transform" and (failed := _count_nan_rows(scores)):
            raise BadRows(
                f"{failed} of {len(scores)} rows have no finite score: a missing or infinite number reached a step "
                f"that takes none, or an encoder rejects a category; the model reads {self.number_columns} and "
                f"{self.string_columns}"
            )
        return output

    def _columns(self, rows: Rows) -> tuple[list[Any], list[Texts]]:
        """The columns that the model reads, checked."""
        needed = [*self.number_columns, *self.string_columns]
        keys = _column_keys(rows, needed)
        names = [str(key) for key in keys]
        if missing := [name for name in needed if name not in names]:
            raise BadRows(f"columns missing: {missing}; given: {names}")
        key_of = dict(zip(names, keys, strict=True))
        if len(key_of) < len(names) and (twice := [name for name in needed if names.count(name) > 1]):
            raise BadRows(f"columns given twice: {twice}; each name must be there once, and 1 is the name '1'")
        numbers = [_numbers(name, rows[key_of[name]]) for name in self.number_columns]
        # Arrow has one kind of missing text, which is pandas' NaN.
        nones = [] if hasattr(rows, "to_pylist") else self._none_columns
        strings = [
            _strings(name, rows[key_of[name]], NONE if name in nones else None, integers=name in self._told_by_text)
            for name in self.string_columns
        ]
        lengths = dict(zip(needed, [*map(len, numbers), *map(len, strings)], strict=True))
        if len(set(lengths.values())) > 1:
            raise BadRows(f"columns of different lengths: {lengths}")
        if not needed:
            raise BadRows("this model reads no column, so that the number of rows is unknown")
        return numbers, strings


def _column_keys(rows: Rows, needed: list[str]) -> list[Any]:
    """The column keys of a mapping, or of a table of Arrow or Polars."""
    if type(rows).__name__ == "LazyFrame":
        raise BadRows("rows given as a LazyFrame, which holds none yet; give rows.collect()")
    keys = rows.keys() if hasattr(rows, "keys") else getattr(rows, "column_names", getattr(rows, "columns", None))
    if keys is None:
        raise BadRows(f"rows given as {type(rows).__name__}; give a mapping of column name to values: {needed}")
    return list(keys)


class Texts:
    """A column of texts as its distinct values and codes.

    Attributes
    ----------
    distinct : list of str or None
        The values in the order of their first rows, None for a missing text.
    codes : buffer of int64
        The position in ``distinct`` of each row's text; negative codes count from the end.
    """

    def __init__(self, distinct: list[str | None], codes: Any) -> None:
        self.distinct, self.codes = distinct, codes

    def __len__(self) -> int:
        return len(self.codes)

    def listed(self) -> list[str | None]:
        """The text of each row."""
        return [self.distinct[code] for code in self.codes.tolist()]


def _numbers(name: str, column: Any) -> Any:
    """A buffer of float64, NaN where a number is missing."""
    if type(column).__module__ == "numpy" and column.dtype.kind in "Mm":  # which NumPy lists as whole numbers
        raise BadRows(f"column {name!r} holds {column.dtype}; numbers are read there, None or NaN where missing")
    if (array_of_numbers := _numpy_numbers(column)) is not None:
        return array_of_numbers.astype("float64")
    values = _listed(name, column)
    kinds = set(map(type, values))
    if wrong := {kind for kind in kinds if issubclass(kind, str | bytes) or not _is_number(kind)}:
        value = next(value for value in values if type(value) in wrong)
        raise BadRows(f"column {name!r} holds {value!r}; numbers are read there, None or NaN where missing")
    if missing := {kind for kind in kinds if _is_none(kind)}:
        values = [math.nan if type(value) in missing else value for value in values]
    try:
        return array("d", values if kinds <= {float, int, bool} | missing else map(float, values))
    except OverflowError as error:
        raise BadRows(f"column {name!r} holds a number that float64 cannot hold") from error


def _strings(name: str, column: Any, none: str | None, integers: bool = False) -> Texts:
    """Texts, None where missing; ``none`` replaces None. With ``integers`` a whole number counts as its text."""
    dtype = getattr(column, "dtype", None)
    # pandas has codes for categories already, and makes them of Arrow's texts without a Python string for each.
    fast_codes = type(dtype).__name__ == "CategoricalDtype" or getattr(dtype, "storage", None) == "pyarrow"
    if fast_codes and len(column) > FEW_ROWS:
        codes, values = column.factorize()  # in the order of the rows; a missing text has the code -1
        distinct = [_text(name, value, none, integers) for value in values.tolist()]
        return Texts(distinct + [None] * bool((codes < 0).any()), codes.astype("int64"))
    values = _listed(name, column)
    if not {*map(type, values)} <= {str, float, type(None)}:  # other types may have no useful equality
        return Texts([_text(name, value, none, integers) for value in values], array("q", range(len(values))))
    code_of = {value: code for code, value in enumerate(dict.fromkeys(values))}
    distinct = [_text(name, value, none, integers) for value in code_of]
    return Texts(distinct, array("q", map(code_of.__getitem__, values)))


def _text(name: str, value: Any, none: str | None, integers: bool) -> str | None:
    if isinstance(value, str):
        if "\0" in value:
            raise BadRows(f"column {name!r} holds {value!r}, with a NUL in it, at which some runtimes cut a text")
        return value
    if integers and isinstance(value, Integral):
        return str(int(value))
    if not (_is_none(type(value)) or (isinstance(value, float) and math.isnan(value))):
        raise BadRows(f"column {name!r} holds {value!r}; texts are read there, None or NaN where missing")
    return none if value is None else None


def _listed(name: str, column: Any) -> list[Any]:
    if isinstance(column, str | bytes) or not hasattr(column, "__len__"):
        raise BadRows(f"column {name!r} is a single {type(column).__name__}; give a list with one value per row")
    # A list of a table or a dict would hold its column names.
    if len(getattr(column, "shape", (0,))) != 1 or isinstance(column, Mapping):
        raise BadRows(
            f"column {name!r} is a {type(column).__name__}, no single column; give a list or an array of one "
            "dimension, with one value per row"
        )
    if hasattr(column, "to_pylist"):  # Arrow's
        return list(column.to_pylist())
    return list(column.tolist() if hasattr(column, "tolist") else column)


def _numpy_numbers(column: Any) -> Any:
    """The NumPy array of a column of real numbers, plain or pandas; None for any other column."""
    numpy = sys.modules.get("numpy")  # imported already if a column has one of its types
    if numpy is None or not isinstance(getattr(column, "dtype", None), numpy.dtype):
        return None
    values = column.to_numpy() if hasattr(column, "to_numpy") else column
    plain = type(values) in (numpy.ndarray, numpy.memmap) and values.dtype.kind in "fiub" and values.dtype.itemsize <= 8
    return values if plain and values.ndim == 1 else None


def _is_none(kind: type) -> bool:
    """Whether a type's only value means a missing one."""
    return kind is type(None) or kind.__name__ == "NAType"


def _is_number(kind: type) -> bool:
    return _is_none(kind) or (hasattr(kind, "__float__") and kind.__name__ not in NO_REAL_NUMBERS)


def _count_nan_rows(scores: Any) -> int:
    """The number of rows with NaN, which marks a rejected row; infinity is a valid score."""
    valid = scores == scores
    return 0 if valid.all() else len(scores) - int(valid.all(1).sum())


def _slices(facts: Mapping[str, Any], rows: int) -> Iterator[slice]:
    """Slices of rows that bound the memory of a graph; at least one."""
    size = facts["rows_at_once"] or max(rows, 1)
    for start in range(0, max(rows, 1), size):
        yield slice(start, start + size)


# One function for each format.


def _format(path: Path) -> tuple[str, dict[str, Any]]:
    """The format of a file by its first bytes and members, and the metadata of a package."""
    with open(path, "rb") as file:
        start = file.read(4)
    if start[:2] == b"PK":
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if facts := [member for member in members if member.filename.endswith(MEMBER)]:
                if facts[0].compress_type != zipfile.ZIP_STORED:  # what is not compressed is no larger than the file
                    raise ValueError("its metadata is compressed")
                described = json.loads(archive.read(facts[0]))
                if described["format"] in ("exported", "aoti"):
                    return described["format"], described
            elif any(member.filename.endswith("constants.pkl") for member in members):
                return "torchscript", {}
    elif path.suffix in LIBRARIES:
        return "c", {}
    elif start[:1] == IR_VERSION or path.suffix.lower() == ".onnx":
        return "onnx", {}
    raise ValueError("none of these formats; windtunnel.load reads what net.save wrote")


def _load_onnx(path: Path) -> Model:
    import numpy as np

    session = _onnx_session(path)
    described = session.get_modelmeta().custom_metadata_map
    if "windtunnel" not in described:
        raise ValueError(f"{str(path)!r} is an ONNX model that windtunnel's export did not write")
    facts = json.loads(described["windtunnel"])
    misread = {name: set(facts.get("misread", {}).get(name, [MISSING_IN_ONNX])) for name in facts["string_columns"]}
    types = {each.name: each.type.removeprefix("tensor(").rstrip(")") for each in session.get_inputs()}

    def run(method: str, numbers: Any, strings: Any) -> tuple[Any, Any]:
        columns = {
            name: _onnx_numbers(name, column, types.get(name, "double"))
            for name, column in zip(facts["number_columns"], numbers, strict=True)
        }
        columns |= {
            name: _onnx_texts(texts, misread[name])
            for name, texts in zip(facts["string_columns"], strings, strict=True)
        }
        count = len(next(iter(columns.values())))
        parts = [
            session.run(["scores", method], {name: column[part] for name, column in columns.items()})
            for part in _slices(facts, count)
        ]
        scores, output = (np.concatenate(blocks) for blocks in zip(*parts, strict=True))
        return scores, output

    return Model(facts, run)


def _onnx_session(path: Path) -> Any:
    """A session that computes what the file says, and reads no other file."""
    import onnxruntime  # type: ignore[import-not-found,unused-ignore]

    options = onnxruntime.SessionOptions()
    # Other optimizations keep float64 factors as float32.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    # A path that is no folder, so that tensors in other files are rejected.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.resolve()))
    return onnxruntime.InferenceSession(
        path.read_bytes(),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["NoopElimination"],  # drops a factor that is 1 only in float32
    )


def _onnx_numbers(name: str, column: Any, kind: str) -> Any:
    """A column of numbers in the type of its input."""
    import numpy as np

    numbers, dtype = np.asarray(column), "float32" if kind == "float" else kind  # other names are NumPy's too
    if dtype == "double":
        return numbers
    with np.errstate(invalid="ignore"):  # what does not fit is rejected
        typed = numbers.astype(dtype)
    if dtype not in ("float32", "float16") and (typed != numbers).any():
        raise BadRows(f"column {name!r} takes values of type {dtype} only, and no missing ones")
    return typed


def _onnx_texts(texts: Texts, misread: set[str]) -> Any:
    """A column of texts as its input takes them; ``misread`` are unknown texts that would count as missing ones."""
    import numpy as np

    safe = [UNKNOWN_IN_ONNX if text in misread else text for text in texts.distinct]
    # Objects: an array of fixed width would cut a text at a NUL.
    distinct = np.array([MISSING_IN_ONNX if text is None else text for text in safe], dtype=object)
    return distinct[np.asarray(texts.codes)]


def _load_torchscript(path: Path) -> Model:
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.jit", DeprecationWarning)
        program: Any = torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
    outputs = ["scores", *(method for method in ("predict_proba", "predict") if hasattr(program, method))]
    facts = {
        "format": "torchscript",
        "number_columns": list(program.number_columns()),
        "string_columns": list(program.string_columns()),
        "none_columns": list(program.none_columns()),
        "told_by_text": _told_by_text(program),
        "classes": list(program.classes()),
        "outputs": outputs,
        "task": "transform" if outputs == ["scores"] else "predict",
    }

    def run(method: str, numbers: Any, strings: Any) -> tuple[Any, Any]:
        count = len((numbers or strings)[0])
        block = _block(numbers, count, torch.float64).t()
        texts = [column.listed() for column in strings]
        output = program(block, texts) if method == "scores" else getattr(program, method)(block, texts)
        return output[:0], output  # no scores to check: the program raises by itself

    return Model(facts, run)


def function_prefix(path: Path) -> str:
    """The start of the function names of a C file or library; it is none of the names that the file itself uses."""
    name = path.stem
    return re.sub(
        r"\W", "_", f"m{name}" if re.match(r"\d|wt(_small|_full)?$", name, re.IGNORECASE) else name, flags=re.ASCII
    )


def _shared_library(path: Path) -> Any:
    """The library that is in the file now.

    For the same path the system returns the library that it opened there before, also if another file has replaced
    it. A link has a path of its own.
    """
    import ctypes

    try:
        with TemporaryDirectory() as folder:
            link = Path(folder, path.name)
            link.symlink_to(path.resolve())
            return ctypes.CDLL(str(link))
    except OSError:  # no links here, or no library, which the error then names by its path
        return ctypes.CDLL(str(path.resolve()))


def _load_library(path: Path) -> Model:
    import ctypes

    import numpy as np

    library, prefix = _shared_library(path), function_prefix(path)
    try:
        described = ctypes.c_char_p.in_dll(library, f"{prefix}_facts").value
    except ValueError as error:
        raise ValueError(f"it has no {prefix}_facts; name a library after its C file") from error
    facts, message = json.loads(described or b""), library[f"{prefix}_message"]
    message.restype = ctypes.c_char_p
    field = {name: f"column_{place}" for place, name in enumerate(facts["row"])}
    types = [(field[name], np.uintp if name in facts["string_columns"] else np.float64) for name in field]
    row = np.dtype(types, align=True)

    def run(method: str, numbers: Any, strings: Any) -> tuple[Any, Any]:
        rows = np.empty(len((numbers or strings)[0]), row)
        texts: list[Any] = []  # the bytes, as rows hold addresses alone
        for name, column in zip(facts["number_columns"], numbers, strict=True):
            rows[field[name]] = column
        for name, column in zip(facts["string_columns"], strings, strict=True):
            distinct = [text if text is None else text.encode("utf-8", "surrogatepass") for text in column.distinct]
            texts.append((ctypes.c_char_p * len(distinct))(*distinct))
            rows[field[name]] = np.frombuffer(texts[-1], np.uintp)[np.asarray(column.codes)]
        positions = method == "predict" and len(facts["classes"]) > 0
        output = np.empty((len(rows), *facts["shapes"][method]), np.int32 if positions else np.float64)
        function = library[f"{prefix}_{'transform' if method == 'scores' else method}"]
        arrays = (rows, output, np.empty(facts["workspace"], np.uint8))
        first, out, workspace = (ctypes.c_void_p(array.ctypes.data) for array in arrays)
        if len(rows) and (error := function(first, ctypes.c_size_t(len(rows)), out, workspace)):
            raise BadRows(message(error).decode())
        if positions:
            return output[:0], output.astype(np.int64)  # no scores to check
        return output.reshape(len(rows), int(np.prod(output.shape[1:]))), output

    return Model(facts, run)


def _torch_version() -> str:
    import torch

    return torch.__version__.split("+")[0]


def _told_by_text(program: Any) -> list[str]:
    """The columns of a TorchScript program that all look-ups read by the hash of their text."""
    by_text: dict[int, bool] = {}
    for lookup in program.texts.children():
        by_text[lookup.place] = by_text.get(lookup.place, True) and lookup.by_hash
    return [name for place, name in enumerate(program.string_columns()) if by_text[place]]


def _index(values: list[str | None]) -> dict[str, int]:
    """The id of each category by its text; None stands for one whose text is not known."""
    return {text: 2 + place for place, text in enumerate(values) if text is not None}


def _load_package(path: Path, facts: dict[str, Any]) -> Model:
    import torch

    if facts["format"] == "aoti":
        program: Any = torch._inductor.aoti_load_package(str(path))
    else:
        program = torch.export.load(str(path)).module()
    categories = facts["categories"]
    indexes = [_index(category["values"]) for category in categories]

    def run(method: str, numbers: Any, strings: Any) -> tuple[Any, Any]:
        texts = dict(zip(facts["string_columns"], strings, strict=True))
        count = len((numbers or strings)[0])
        columns = [texts[category["column"]] for category in categories]
        ids = _block([column.codes for column in columns], count, torch.int64)
        for row, column, category, index in zip(ids, columns, categories, indexes, strict=True):
            row.copy_(torch.tensor(_ids(column, category, index), dtype=torch.int64)[row])
        blocks, position = (_block(numbers, count, torch.float64), ids), facts["outputs"].index(method)
        with torch.inference_mode():
            parts = [
                program(*(block[:, part].t().contiguous().to(facts["device"]) for block in blocks))
                for part in _slices(facts, count)
            ]
        scores, output = (torch.cat([part[place] for part in parts]).cpu() for place in (0, position))
        return scores, output

    return Model(facts, run)


def _block(columns: list[Any], count: int, dtype: Any) -> Any:
    """Buffers of numbers as a tensor ``[columns, count]``."""
    import torch

    data = bytearray().join(columns)
    return (torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)).view(len(columns), count)


def _ids(texts: Texts, category: Mapping[str, Any], index: Mapping[str, int]) -> list[int]:
    """The id of each distinct text: 1 missing, 2 + i the i-th category, then hash buckets; any other is unknown."""
    unknown = category.get("unknown", 0)  # an older file does not name it; 0 is any other text there
    ids = [1 if text is None else index.get(text, unknown) for text in texts.distinct]
    buckets, first = category["buckets"], 2 + len(category["values"])
    if buckets:
        for place, text in enumerate(texts.distinct):
            if ids[place] == 0 and text is not None:
                digest = hashlib.md5(text.encode("utf-8"), usedforsecurity=False).hexdigest()
                ids[place] = first + int(digest, 16) % buckets
    if category["rejects_unknown"] and unknown in ids:
        text = texts.distinct[ids.index(unknown)]
        raise BadRows(f"column {category['column']!r}: its encoder rejects the category {text!r}")
    if category["rejects_missing"] and 1 in ids:
        raise BadRows(f"column {category['column']!r}: its encoder rejects missing values")
    return ids
