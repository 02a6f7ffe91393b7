"""File formats for other processes to score with. ``artefact`` saves and loads a whole translation."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from os import PathLike, fspath
from pathlib import Path

from windtunnel.errors import InvalidOption
from windtunnel.export import lightgbm_text, onnx_file, package, torchscript, xgboost_json
from windtunnel.program.translated import TranslatedPipeline

SUFFIXES = {
    "torchscript": (".ts", ".pt"),
    "onnx": (".onnx",),
    "exported": (".pt2",),
    "aoti": (".pt2",),
    "lightgbm": (".txt",),
    "xgboost": (".json",),
}
"""Format -> suffixes of its files; messages propose the first."""
FORMATS = tuple(SUFFIXES)
WRITERS: dict[str, Callable[[TranslatedPipeline, str | PathLike[str]], None]] = {
    "torchscript": torchscript.export,
    "onnx": onnx_file.export,
    "exported": partial(package.export, native=False),
    "aoti": partial(package.export, native=True),
    "lightgbm": lightgbm_text.export,
    "xgboost": xgboost_json.export,
}


def export(net: TranslatedPipeline, path: str | PathLike[str], format: str = "torchscript") -> None:
    """Write one file that scores without windtunnel.

    Parameters
    ----------
    net : TranslatedPipeline
        Left as it is.
    path : path
    format : str
        "torchscript" loads with torch alone and takes numbers and raw text (``windtunnel.export.torchscript``). "onnx"
        runs in ONNX Runtime and takes raw columns by name (``windtunnel.export.onnx_file``). "exported" is a
        ``torch.export`` program and "aoti" the same compiled for this kind of machine, which take numbers and ids
        (``windtunnel.export.package``). ``windtunnel.export.serving``, which imports nothing of windtunnel, scores raw
        columns by name with any of them. "lightgbm" and "xgboost" hold the trees of the last step as a model of these
        libraries, over the columns of that step (``windtunnel.export.lightgbm_text``, ``xgboost_json``).

    Raises
    ------
    InvalidOption
        Another format, or a file name of another format.
    UnfaithfulOption
        The format cannot hold the translation.
    """
    if format not in FORMATS:
        close = get_close_matches(str(format).lower(), FORMATS, n=1, cutoff=0.5)
        raise InvalidOption(
            f"format={format!r}; available: {', '.join(map(repr, FORMATS))}."
            + (f" Did you mean {close[0]!r}?" if close else "")
        )
    suffix = Path(path).suffix.lower()
    others = [other for other in (*FORMATS, "save") if suffix in (*SUFFIXES.get(other, (".windtunnel",)),)]
    if others and format not in others:
        raise InvalidOption(
            f"{fspath(path)!r} with format={format!r}: {suffix} is what files of {others[0]!r} are called; "
            f"name the file {' or '.join(SUFFIXES[format])}."
        )
    WRITERS[format](net, path)
