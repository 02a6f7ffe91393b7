"""Ways out: one file that another process scores with. ``artefact`` saves and loads a whole translation."""

from __future__ import annotations

from difflib import get_close_matches
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.errors import UnfaithfulOption

if TYPE_CHECKING:
    from windtunnel.translation import Translation

FORMATS = ("torchscript",)
PLANNED = ("onnx", "exported", "aoti")
SUFFIXES = {".onnx": "onnx", ".pt2": "exported", ".windtunnel": "save"}
"""Names of files that hold something else than TorchScript."""


def export(net: Translation, path: str | PathLike[str], format: str = "torchscript") -> None:
    """Write one file that scores without windtunnel.

    Parameters
    ----------
    net : Translation
        Left as it is.
    path : path
    format : str
        "torchscript": loads with torch alone, takes numbers and raw text; see ``windtunnel.export.torchscript``.

    Raises
    ------
    UnfaithfulOption
        Another format, or a translation that the format cannot hold.
    """
    if format in PLANNED:
        raise UnfaithfulOption(f"format={format!r} is not available yet; available: {', '.join(map(repr, FORMATS))}.")
    suffix = Path(path).suffix.lower()
    if suffix in SUFFIXES and SUFFIXES[suffix] != format:
        raise UnfaithfulOption(
            f"{fspath(path)!r} with format={format!r}: {suffix} is what files of {SUFFIXES[suffix]!r} are called; "
            "name the file .ts or .pt."
        )
    if format not in FORMATS:
        close = get_close_matches(str(format).lower(), FORMATS, n=1, cutoff=0.5)
        raise UnfaithfulOption(
            f"format={format!r}; available: {', '.join(map(repr, FORMATS))}."
            + (f" Did you mean {close[0]!r}?" if close else "")
        )
    from windtunnel.export import torchscript

    torchscript.export(net, path)
