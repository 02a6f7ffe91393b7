"""Ways out: one file that another process scores with. ``artefact`` saves and loads a whole translation."""

from __future__ import annotations

from difflib import get_close_matches
from os import PathLike
from typing import TYPE_CHECKING

from windtunnel.errors import UnfaithfulOption

if TYPE_CHECKING:
    from windtunnel.translation import Translation

FORMATS = ("torchscript",)
PLANNED = ("onnx", "exported", "aoti")


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
    if format not in FORMATS:
        close = get_close_matches(str(format).lower(), FORMATS, n=1, cutoff=0.5)
        raise UnfaithfulOption(
            f"format={format!r}; available: {', '.join(map(repr, FORMATS))}."
            + (f" Did you mean {close[0]!r}?" if close else "")
        )
    from windtunnel.export import torchscript

    torchscript.export(net, path)
