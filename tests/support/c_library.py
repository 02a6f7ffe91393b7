"""A pipeline exported as C, compiled to a shared library and called through ctypes, with the methods of its source."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from windtunnel.encode import NONE_CATEGORY
from windtunnel.export.columns import none_columns

FLAGS = [
    "-std=c11",
    "-O0",
    "-w",
    "-DWT_PORTABLE",
    "-shared",
    "-fPIC",
    *os.environ.get("WINDTUNNEL_C_FLAGS", "").split(),
]
"""``make native-sanitize`` adds the sanitizers."""


class CLibrary:
    """The methods of the source, with ``ValueError`` in the place of error codes.

    Parameters
    ----------
    net : Translation
        Is exported to ``folder``.
    """

    def __init__(self, net: Any, folder: Path) -> None:
        net.export(folder / "model.c")
        path = str(folder / "model.so")
        subprocess.run(["cc", *FLAGS, str(folder / "model.c"), "-lm", "-o", path], check=True)
        header = (folder / "model.h").read_text()
        self._library, self._head = ctypes.CDLL(path), net.head
        self._nones = none_columns(net.encoder)
        self._library.model_message.restype = ctypes.c_char_p
        struct = re.findall(r"^    (const char \*|double )(\w+); /\* '?(.+?)'? \*/$", header, re.MULTILINE)
        kinds = {"double ": ctypes.c_double}
        fields = [(field, kinds.get(kind, ctypes.c_char_p)) for kind, field, _ in struct]
        self._columns = {name: kind == "double " for kind, _, name in struct}
        self._row: Any = type("Row", (ctypes.Structure,), {"_fields_": fields or [("unused", ctypes.c_char)]})
        self._workspace = ctypes.create_string_buffer(int(re.findall(r"MODEL_WORKSPACE = (\d+)", header)[0]))
        for method, kind in re.findall(r"int model_(\w+)\(const model_row \*rows, size_t count, (\w+) \*out", header):
            width = int(re.findall(rf"MODEL_{method.upper()}_WIDTH = (\d+)", header)[0])
            setattr(self, method, partial(self._call, method, width, np.int32 if kind == "int32_t" else np.float64))

    def _call(self, method: str, width: int, dtype: Any, table: pd.DataFrame) -> Any:
        output = np.zeros((len(table), width), dtype)
        rows = (self._row * len(table))(*map(self._row, *(self._values(table, name) for name in self._columns)))
        place = ctypes.c_void_p(output.ctypes.data)
        error = getattr(self._library, f"model_{method}")(rows, ctypes.c_size_t(len(table)), place, self._workspace)
        if error:
            raise ValueError(self._library.model_message(error).decode())
        if dtype == np.int32:
            output = self._head.classes[output]
        flat = width == 1 and method in ("predict", "decision_function", "score_samples")
        return output[:, 0] if flat else output

    def _values(self, table: pd.DataFrame, name: str) -> list[Any]:
        if self._columns[name]:
            return [np.nan if pd.isna(value) else float(value) for value in table[name]]
        cells = [NONE_CATEGORY if value is None and name in self._nones else value for value in table[name]]
        cells = [None if pd.isna(value) else value for value in cells]
        return [cell if cell is None or isinstance(cell, bytes) else str(cell).encode() for cell in cells]
