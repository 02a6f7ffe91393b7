"""File formats for other processes to score with. ``artefact`` saves and loads a whole translation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Literal, get_args

from windtunnel.encode import Rows
from windtunnel.errors import InvalidOption, nearest
from windtunnel.export import c_file, onnx_file, package, torchscript
from windtunnel.export.tree_files import lightgbm_text, xgboost_json
from windtunnel.program.translated import TranslatedPipeline

Format = Literal["torchscript", "onnx", "exported", "aoti", "c", "lightgbm", "xgboost"]
SUFFIXES: dict[str, tuple[str, ...]] = {
    "torchscript": (".ts", ".pt"),
    "onnx": (".onnx",),
    "exported": (".pt2",),
    "aoti": (".pt2",),
    "c": (".c",),
    "lightgbm": (".txt",),
    "xgboost": (".json",),
}
"""Format -> suffixes of its files; messages propose the first."""
SAVED = ".windtunnel"
"""Suffix of the files of ``save``."""
FORMATS = get_args(Format)
WRITERS: dict[str, Callable[[TranslatedPipeline, str | PathLike[str]], None]] = {
    "torchscript": torchscript.export,
    "onnx": onnx_file.export,
    "exported": partial(package.export, native=False),
    "aoti": partial(package.export, native=True),
    "c": c_file.export,
    "lightgbm": lightgbm_text.export,
    "xgboost": xgboost_json.export,
}


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
        WRITERS[chosen](net, path)
    elif chosen == "onnx":
        onnx_file.export(net, path, example)
    else:
        raise InvalidOption(f"example= is for ONNX files, whose inputs have types; format {chosen!r} takes none.")


def _format_of(path: str | PathLike[str]) -> str:
    """The first format with the suffix of a path."""
    suffix = Path(path).suffix.lower()
    if suffix == SAVED:
        raise InvalidOption(f"{fspath(path)!r}: {SAVED} is what files of save are called; call net.save(path).")
    for format, suffixes in SUFFIXES.items():
        if suffix in suffixes:
            return format
    accepted = {suffixes[0]: format for format, suffixes in reversed(SUFFIXES.items())}
    raise InvalidOption(
        f"{fspath(path)!r}: no format has {f'the suffix {suffix}' if suffix else 'files without a suffix'}; take "
        f"{', '.join(f'{suffix} ({format})' for suffix, format in sorted(accepted.items()))}, or give format=."
    )


def _checked(format: str, path: str | PathLike[str]) -> str:
    """The format; ``InvalidOption`` if it is unknown, or if another format has the suffix of the path."""
    if format not in FORMATS:
        raise InvalidOption(f"format={format!r} is not known; {nearest(str(format).lower(), FORMATS)}")
    suffix = Path(path).suffix.lower()
    if suffix == ".h" and format == "c":
        raise InvalidOption(f"{fspath(path)!r} is the name of the header, which is written too; name the file .c.")
    others = [other for other, suffixes in (*SUFFIXES.items(), ("save", (SAVED,))) if suffix in suffixes]
    if others and format not in others:
        raise InvalidOption(
            f"{fspath(path)!r} with format={format!r}: {suffix} is what files of {others[0]!r} are called; "
            f"name the file {' or '.join(SUFFIXES[format])}."
        )
    return format
