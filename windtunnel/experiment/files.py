"""Tables in CSV, CSV.gz and Parquet files: read, predict, write."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from windtunnel.api.translation import Translation
from windtunnel.atomic_write import replacing
from windtunnel.encode.arrow import exact_integers, is_rounded, table_to_pandas
from windtunnel.errors import BadInput, nearest

PARQUET, CSV = (".parquet", ".pq"), (".csv.gz", ".csv")
"""Endings of the files that are read and written."""
TAKEN_AS_TEXT = (pa.types.is_date, pa.types.is_time, pa.types.is_decimal, pa.types.is_binary)
"""Types of Arrow whose columns are read as texts."""
WHOLE = re.compile(r"-?\d{1,19}")
"""Texts of whole numbers that 64 bits hold, but for the largest ones."""
DECIMALS = re.compile(r"-?\d+\.(?!0$)\d+")
"""Texts of numbers that are not whole, or have more decimals than pandas writes."""
MISSING_NUMBERS = ("NaN", "nan", "NA")
"""Texts that stand for a missing value among the numbers of a CSV file."""


def read_table_file(path: str | Path, *, text: Collection[str] = ()) -> pd.DataFrame:
    """Read a table.

    In a CSV file, an empty field is a missing value, and "NaN", "nan" and "NA" are if all other fields of their column
    are numbers. Any other text is a text, "NULL" too, as in a Parquet file.

    Parameters
    ----------
    path : path
        Ends in .csv, .csv.gz, .parquet or .pq.
    text : collection of str
        Columns to read as text, so that "007" is not converted to 7; missing values stay missing. In a Parquet file
        whole numbers become their digits, times "2020-01-01 00:00:00" with as many decimals as their type has.

    Raises
    ------
    BadInput
        Another suffix, content that does not match it, a row with more or fewer fields than the header, or two
        columns of the same name.
    FileNotFoundError
    """
    path = Path(path)
    parquet = is_parquet(path)
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}; give a CSV, CSV.gz or Parquet file that exists")
    with explain_damage(path):
        if not parquet:
            return _read_csv(path, text)
        _reject_equal_names(path, pd.Series(pq.read_schema(path).names))
        return frame_of(pq.read_table(path), text)


def _reject_equal_names(path: Path, names: pd.Series) -> None:
    if twice := sorted({str(name) for name in names[names.duplicated()].dropna()}):
        raise BadInput(f"{path} has columns of the same name: {', '.join(map(repr, twice[:5]))}; rename one of each")


@contextmanager
def explain_damage(path: Path) -> Iterator[None]:
    """Raise ``BadInput`` with the name of a file for what pandas, Arrow and Python raise on damaged files."""
    try:
        yield
    except (ValueError, EOFError, OSError, zlib.error, pa.ArrowException) as error:
        if isinstance(error, BadInput) or getattr(error, "errno", None) is not None:  # of the system: no such file
            raise
        if isinstance(error, UnicodeDecodeError):
            raise BadInput(f"{path} is no text in UTF-8 ({error}); save it as UTF-8") from error
        raise BadInput(f"{path} cannot be read: {' '.join(str(error).split())}") from error


def frame_of(table: pa.Table | pa.RecordBatch, text: Collection[str]) -> pd.DataFrame:
    """Arrow columns as a DataFrame: the columns ``text``, dates, times, decimals and bytes as texts.

    What a value becomes depends on its type alone, and not on the other values of the file: whole numbers have no
    decimal point, even if some are missing. Categories stay categories.
    """
    texts = [
        at
        for at, field in enumerate(table.schema)
        if any(is_type(field.type) for is_type in TAKEN_AS_TEXT)
        or (field.name in text and not pa.types.is_dictionary(field.type))
    ]
    names = {table.schema.names[at] for at in texts}
    if (pandas := table.schema.pandas_metadata) is not None:  # the types of a DataFrame that the file was written from
        for column in pandas["columns"]:
            if column["field_name"] in names:
                column |= {"pandas_type": "unicode", "numpy_type": "str", "metadata": None}
        table = table.replace_schema_metadata({**table.schema.metadata, b"pandas": json.dumps(pandas)})
    for at in texts:
        table = table.set_column(at, table.schema.names[at], _as_text(table.column(at)))
    return table_to_pandas(table).apply(_without_pandas_missing)


def _without_pandas_missing(column: pd.Series) -> pd.Series:
    """A column of pandas' nullable numbers or booleans as NumPy's, with NaN where values are missing.

    Whole numbers beyond 2^53 beside missing ones stay as they are: NaN would round them.
    """
    numpy_dtype = getattr(column.dtype, "numpy_dtype", None)
    if numpy_dtype is None or isinstance(column.dtype, np.dtype | pd.ArrowDtype):
        return column
    if not column.isna().any():
        return column.astype(numpy_dtype)
    if numpy_dtype == np.bool_:
        return column.astype(object).mask(column.isna(), np.nan)
    floats = column.astype(np.float64)
    return column if numpy_dtype.kind in "iu" and is_rounded(floats) else floats


def _as_text(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if pa.types.is_boolean(column.type):
        return pc.if_else(column, "True", "False")
    if pa.types.is_floating(column.type):
        return pa.array(column.to_pandas().astype("str"), pa.string(), from_pandas=True)
    return column.cast(pa.string())


def _read_csv(path: Path, text: Collection[str]) -> pd.DataFrame:
    types = dict.fromkeys(text, "str")
    options: dict[str, Any] = {"keep_default_na": False, "na_values": [""]}
    header = pd.read_csv(path, header=None, nrows=1, dtype="str", **options).iloc[0]
    _reject_equal_names(path, header)
    frame: pd.DataFrame = pd.read_csv(path, dtype=types, low_memory=False, **options)
    if not isinstance(frame.index, pd.RangeIndex):  # pandas takes the first fields for names of rows
        raise BadInput(f"the rows of {path} have more fields than its header; remove commas at their ends")
    if frame.iloc[:, -1:].isna().any(axis=None):
        _reject_short_rows(path)
    for name in frame.columns.difference([*text]):
        if pd.api.types.is_string_dtype(frame[name]):
            with suppress(ValueError):  # a text
                frame[name] = pd.to_numeric(frame[name].mask(frame[name].isin(MISSING_NUMBERS)))
        if is_rounded(frame[name]):
            fields = pd.read_csv(path, usecols=[name], dtype="str", **options)[name]
            fields = fields.mask(fields.isin(MISSING_NUMBERS))
            if fields.dropna().str.fullmatch(WHOLE).all():
                values = [None if pd.isna(field) else int(field) for field in fields]
                frame[name] = exact_integers(values)
    return frame


def _reject_short_rows(path: Path) -> None:
    """Raise for a row with fewer fields than the header, which pandas fills with missing values."""
    compression = "gzip" if path.suffix.lower() == ".gz" else None
    pyarrow.csv.read_csv(
        pa.input_stream(path, compression=compression),
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False,  # with threads, an error does not tell the row
            block_size=2**26,  # no row may be longer
            autogenerate_column_names=True,
        ),
        parse_options=pyarrow.csv.ParseOptions(
            newlines_in_values=True, invalid_row_handler=lambda row: "error" if row.text.strip() else "skip"
        ),
        convert_options=pyarrow.csv.ConvertOptions(include_columns=["f0"], column_types={"f0": pa.string()}),
    )


def write_table_file(frame: pd.DataFrame, path: str | Path) -> None:
    """Write rows to a .csv, .csv.gz, .parquet or .pq file."""
    path = Path(path)
    if is_parquet(path) and (twice := sorted({str(name) for name in frame.columns[frame.columns.duplicated()]})):
        raise BadInput(f"{path}: Parquet takes no two columns of one name: {', '.join(twice)}; write a .csv file")
    with replacing(path) as temporary:
        if is_parquet(path):
            frame.to_parquet(temporary, index=False)
        else:
            frame.to_csv(temporary, index=False)


def predict_frame(net: Translation, rows: pd.DataFrame) -> pd.DataFrame:
    """The predictions of raw rows.

    ``prediction`` (``prediction_0``, ... for several outputs), for classifiers also ``probability_<class>``
    (``probability_<target>_<class>`` for several targets, ``probability_<target>`` for several labels); for a
    transformer ``column_0``, ...
    """
    if not hasattr(net, "predict"):
        return pd.DataFrame(net.transform(rows)).add_prefix("column_")
    methods = [method for method in ("predict", "predict_proba") if method in net.head.methods]
    outputs = dict(zip(methods, net.outputs(methods, rows), strict=True))
    predictions = pd.DataFrame(outputs["predict"])
    predictions.columns = (
        ["prediction"] if predictions.shape[1] == 1 else [f"prediction_{at}" for at in predictions.columns]
    )
    if "predict_proba" in outputs:
        probabilities, classes = outputs["predict_proba"], net.classes_
        if isinstance(probabilities, list):
            names = [f"{target}_{label}" for target, labels in enumerate(classes) for label in labels]
            probabilities = np.hstack(probabilities)
        else:  # of several labels the probability of each
            names = [str(label) for label in (range(len(classes)) if isinstance(classes, list) else classes)]
        columns = [f"probability_{name}" for name in names]
        predictions = pd.concat([predictions, pd.DataFrame(probabilities, columns=columns)], axis=1)
    return predictions


def read_target_rows_of(net: Translation, path: str | Path, target: str) -> tuple[pd.DataFrame, pd.Series]:
    """Read raw rows of a translation and a column of targets; labels that are texts stay texts."""
    labels = net.head.labels_in_order
    rows = read_rows_of(net, path, text=[target] if any(isinstance(label, str) for label in labels) else [])
    if target not in rows.columns:
        raise BadInput(f"{path} has no column {target!r}: {nearest(target, map(str, rows.columns))}")
    return rows.drop(columns=target), _with_other_labels(rows[target], labels)


def _with_other_labels(targets: pd.Series, labels: Sequence[Any]) -> pd.Series:
    """Targets where "not x" stands for all labels but x, if that is how the classes were named: see ``load_parts``."""
    positive = next((label for label in labels if f"not {label}" in labels), None)
    if len(labels) != 2 or positive is None:
        return targets
    spelled = targets.map(lambda text: positive if _other_spelling(str(text)) == positive else text)
    return spelled.where(spelled.isna() | spelled.isin(labels), f"not {positive}")


def read_rows_of(net: Translation, path: str | Path, *, text: Collection[str] = ()) -> pd.DataFrame:
    """Read raw rows of a translation: its columns of texts stay texts, and so do the columns ``text``.

    A whole number among the categories is found however a file writes it: pandas writes 1000 as "1000.0" if values of
    the column are missing.
    """
    return spelled_as_in_fitting(net, read_table_file(path, text=[*text_columns(net), *text]))


def spelled_as_in_fitting(net: Translation, rows: pd.DataFrame) -> pd.DataFrame:
    """Rows whose whole numbers among texts, such as "1000.0", are spelled as the categories are, such as "1000"."""
    names, changes = net.encoder.names or [], dict[str, pd.Series]()
    for category in net.encoder.categories:
        name, vocabulary = names[category.column] if category.column < len(names) else "", category.vocabulary
        if name not in rows or not vocabulary.reads_texts or vocabulary.buckets:
            continue
        values = rows[name].dropna().unique()
        unknown = [text for text in values if isinstance(text, str) and not vocabulary.has_text(text)]
        spelled = {text: other for text in unknown if (other := _other_spelling(text)) and vocabulary.has_text(other)}
        of_versions = bool(spelled) and any(DECIMALS.fullmatch(text) for text in vocabulary.id_by_value)
        if spelled and not of_versions:  # 1.0 is another version than 1
            changes[name] = rows[name].map(lambda text, spelled=spelled: spelled.get(text, text))
    return rows.assign(**changes)


def _other_spelling(text: str) -> str | None:
    """The other way to write a whole number, "1000" or "1000.0"; None for any other text."""
    if (whole := re.fullmatch(r"(-?\d+)(\.0)?", text)) is None:
        return None
    return whole[1] if whole[2] else f"{text}.0"


def text_columns(net: Translation) -> list[str]:
    """The raw columns of a translation that hold texts."""
    names = net.encoder.names or []
    columns = {category.column for category in net.encoder.categories if category.vocabulary.reads_texts}
    return [names[column] for column in sorted(columns | net.counted_columns) if column < len(names)]


def is_parquet(path: Path) -> bool:
    """Whether a file of rows is Parquet, not CSV; ``BadInput`` for a name with any other ending."""
    return _ending(path) in PARQUET


def stem(path: Path) -> str:
    """The name of a file of rows without its ending; ``BadInput`` as for ``is_parquet``."""
    return path.name[: -len(_ending(path))]


def _ending(path: Path) -> str:
    name = path.name.lower()
    ending = next((ending for ending in (*PARQUET, *CSV) if name.endswith(ending)), None)
    if ending is None:
        raise BadInput(f"{path} is neither .csv, .csv.gz nor .parquet; convert it, or rename it")
    return ending
