"""Finds the columns of a table by the names that a pipeline was fitted on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import pandas as pd
from numpy.typing import NDArray

from windtunnel.encode.columns import quote_names
from windtunnel.errors import BadInput, join_some


def labels_index(names: Sequence[Any] | NDArray[Any]) -> pd.Index[Any]:
    """The names of columns as an index of pandas."""
    try:
        return pd.Index(names, tupleize_cols=False)
    except UnicodeEncodeError:  # half a surrogate pair, which pandas' string type cannot store
        return pd.Index(names, dtype=object, tupleize_cols=False)


def labels_of(frame: pd.DataFrame, names: Sequence[str], *, reader: str = "The pipeline reads") -> list[Any]:
    """The label of each name in a table; ``BadInput`` for names that are missing or there twice.

    ``reader`` says in messages who needs the names.
    """
    exact = {str(label): label for label in frame.columns}
    # LightGBM writes a blank in a name as an underscore.
    labels = {name.replace(" ", "_"): label for name, label in exact.items()} | exact
    count = Counter(map(str, frame.columns))
    if missing := [name for name in names if name not in labels]:
        read = {str(labels[name]) for name in names if name in labels}  # these have their place already
        unread = [label for label in count if label not in read]
        close = {name: get_close_matches(name, unread, n=1) for name in missing[:12]}
        hints = [f"{name!r} (given: {match[0]!r})" if match else repr(name) for name, match in close.items()]
        has_whole_lines = len(count) == 1 and any(mark in next(iter(count)) for mark in ";\t|")
        advice = "is the file separated by commas?" if has_whole_lines else "rename or add the missing ones."
        raise BadInput(
            f"columns missing: {join_some(hints + missing[12:])}. Given: {quote_names(list(count))}. "
            f"{reader} {quote_names(names)}; {advice}"
        )
    chosen = [labels[name] for name in names]
    if twice := sorted({str(label) for label in chosen if count[str(label)] > 1}):
        raise BadInput(f"columns given twice: {quote_names(twice)}; each name must be there once.")
    return chosen
