"""Tables in files: CSV, CSV.gz and Parquet."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import pandas as pd

from windtunnel.errors import BadInput


def read_table_file(path: str | Path, *, text: Collection[str] = ()) -> pd.DataFrame:
    """Read the rows of a file.

    Parameters
    ----------
    path : path
        Ends in .csv, .csv.gz, .parquet or .pq.
    text : collection of str
        Columns to read as text, so that "007" stays what it is; missing values stay missing.

    Raises
    ------
    BadInput
        Another kind of file, or one that cannot be read as what its name says.
    FileNotFoundError
    """
    path = Path(path)
    read = _reader(path)
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}; give a CSV, CSV.gz or Parquet file that exists")
    try:
        frame = read(path, text)
    except (ValueError, UnicodeError) as error:  # pandas' and Arrow's parsing errors are ValueErrors
        raise BadInput(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    for name in set(text) & set(frame.columns):
        if not isinstance(frame[name].dtype, pd.CategoricalDtype):
            frame[name] = frame[name].astype("str")
    return frame


def write_table_file(frame: pd.DataFrame, path: str | Path) -> None:
    """Write rows to a .csv, .csv.gz, .parquet or .pq file."""
    path = Path(path)
    if _reader(path) is _parquet:
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False)


def _reader(path: Path) -> Callable[[Path, Collection[str]], pd.DataFrame]:
    name = path.name.lower()
    if name.endswith((".parquet", ".pq")):
        return _parquet
    if name.endswith((".csv", ".csv.gz")):
        return _csv
    raise BadInput(f"{path} is neither .csv, .csv.gz nor .parquet; convert it, or rename it to what it is")


def _parquet(path: Path, text: Collection[str]) -> pd.DataFrame:
    return pd.read_parquet(path)


def _csv(path: Path, text: Collection[str]) -> pd.DataFrame:
    return pd.read_csv(path, dtype=dict.fromkeys(text, "str"), low_memory=False)
