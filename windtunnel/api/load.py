"""``load``: a saved translation, read from a file."""

from __future__ import annotations

from os import PathLike
from typing import Any

from windtunnel.api.translation import Translation
from windtunnel.export.artefact import artefact
from windtunnel.program.trainable_tensors import outside_inference_mode


@outside_inference_mode
def load(path: str | PathLike[str], *, host: Any = None, trusted: bool = False) -> Translation:
    """Read a translation that ``save`` wrote; its scores are the same bits, and it can be fitted further.

    Nothing in the file is executed: modules are built from data by their names in windtunnel's own table.

    Parameters
    ----------
    path : path
    host : fitted pipeline, optional
        The pipeline that was translated. It is needed if steps of it stayed on the host and the file does not hold
        what they do.
    trusted : bool
        Whether to accept what could take hours on some rows: patterns of words other than scikit-learn's.

    Raises
    ------
    BadFile
        The file is damaged, cut short, too large, from another schema, or not what ``save`` writes, such as a cascade.
    InvalidOption
        Steps stayed on the host, and ``host`` is missing or is another pipeline.
    """
    return artefact.load(path, Translation, host=host, trusted=trusted)
