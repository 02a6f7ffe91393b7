"""File formats for other processes to score with. ``artefact`` saves and loads a whole translation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Literal

from windtunnel.encode import Rows
from windtunnel.errors import InvalidOption, nearest
from windtunnel.export import c_file, onnx_file, package, torchscript
from windtunnel.export.tree_files import lightgbm_text, xgboost_json
from windtunnel.program.translated import TranslatedPipeline

Format = Literal["torchscript", "onnx", "exported", "aoti", "c", "lightgbm", "xgboost"]
SAVED = ".windtunnel"
"""Suffix of the files of ``save``."""


@dataclass(frozen=True)
class FileFormat:
    """What writes a format, and the suffixes of its files; messages propose the first."""

    write: Callable[[TranslatedPipeline, str | PathLike[str]], None]
    suffixes: tuple[str, ...]


FORMATS: dict[str, FileFormat] = {
    "torchscript": FileFormat(torchscript.export, (".ts", ".pt")),
    "onnx": FileFormat(onnx_file.export, (".onnx",)),
    "exported": FileFormat(partial(package.export, native=False), (".pt2",)),
    "aoti": FileFormat(partial(package.export, native=True), (".pt2",)),
    "c": FileFormat(c_file.export, (".c",)),
    "lightgbm": FileFormat(lightgbm_text.export, (".txt",)),
    "xgboost": FileFormat(xgboost_json.export, (".json",)),
}
"""The formats of ``Format``."""


def export(
    net: TranslatedPipeline, path: str | PathLike[str], format: Format | None = None, *, example: Rows | None = None
) -> None:
    """Write one file that scores without windtunnel.

    Parameters
    ----------
    net : TranslatedPipeline
        Left as it is.
    path : path
    format : str, optional
        By default that of the suffix of the path: .ts and .pt are TorchScript, .onnx ONNX, .pt2 "exported", .c C, .txt
        LightGBM and .json XGBoost.

        "torchscript" loads with torch alone and takes numbers and raw text (``windtunnel.export.torchscript``). "onnx"
        runs in ONNX Runtime and takes raw columns by name (``windtunnel.export.onnx_file``). "exported" is a
        ``torch.export`` program and "aoti" the same compiled for this kind of machine, which take numbers and ids
        (``windtunnel.export.package``). ``windtunnel.export.serving``, which imports nothing of windtunnel, scores raw
        columns by name with any of them. "c" is a C file and a header that need libc and libm alone
        (``windtunnel.export.c_file``). "lightgbm" and "xgboost" hold the trees of the last step as a model of these
        libraries, over the columns of that step (``windtunnel.export.tree_files.lightgbm_text``, ``xgboost_json``).

    example : rows, optional
        For ONNX: columns of numbers take the types that they have in these raw rows; without them, float64.

    Raises
    ------
    InvalidOption
        Another format, a file name of another format, or without ``format`` a suffix that is none of a format.
    UnfaithfulOption
        The format cannot hold the translation.
    """
    chosen = _format_of(path) if format is None else _checked(format, path)
    if example is None:
        FORMATS[chosen].write(net, path)
    elif chosen == "onnx":
        onnx_file.export(net, path, example)
    else:
        raise InvalidOption(f"example= is for ONNX files, whose inputs have types; format {chosen!r} takes none.")


def _format_of(path: str | PathLike[str]) -> str:
    """The first format with the suffix of a path."""
    suffix = Path(path).suffix.lower()
    if suffix == SAVED:
        raise InvalidOption(f"{fspath(path)!r}: {SAVED} is what files of save are called; call net.save(path).")
    for name, file_format in FORMATS.items():
        if suffix in file_format.suffixes:
            return name
    accepted = {file_format.suffixes[0]: name for name, file_format in reversed(FORMATS.items())}
    raise InvalidOption(
        f"{fspath(path)!r}: no format has {f'the suffix {suffix}' if suffix else 'files without a suffix'}; take "
        f"{', '.join(f'{suffix} ({name})' for suffix, name in sorted(accepted.items()))}, or give format=."
    )


def _checked(format: str, path: str | PathLike[str]) -> str:
    """The format; ``InvalidOption`` if it is unknown, or if another format has the suffix of the path."""
    if format not in FORMATS:
        raise InvalidOption(f"format={format!r} is not known; {nearest(str(format).lower(), FORMATS)}")
    suffix = Path(path).suffix.lower()
    if suffix == ".h" and format == "c":
        raise InvalidOption(f"{fspath(path)!r} is the name of the header, which is written too; name the file .c.")
    others = [name for name, other in FORMATS.items() if suffix in other.suffixes]
    others += ["save"] * (suffix == SAVED)
    if others and format not in others:
        raise InvalidOption(
            f"{fspath(path)!r} with format={format!r}: {suffix} is what files of {others[0]!r} are called; "
            f"name the file {' or '.join(FORMATS[format].suffixes)}."
        )
    return format
