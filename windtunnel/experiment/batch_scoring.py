"""Predict files of any size, batch by batch, into a folder; a second run continues the first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import chain
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from windtunnel.api.load import load
from windtunnel.api.translation import Translation
from windtunnel.atomic_write import replacing
from windtunnel.errors import BadInput, InvalidOption, join_some
from windtunnel.experiment.files import (
    explain_damage,
    frame_of,
    is_parquet,
    predict_frame,
    read_rows_of,
    spelled_as_in_fitting,
    stem,
    text_columns,
)
from windtunnel.progress import Phase, show_progress

BATCH_ROWS = 65_536
MODEL_KEY = b"windtunnel.model"
"""Key of the model's SHA-256 in the metadata of a file of predictions."""


def predict_files(model: Path, paths: Sequence[Path], folder: Path | None) -> list[Path]:
    """Write the predictions of each file of rows to a Parquet file of the same name in a folder; returns the new files.

    ``model`` is the file of the model.

    Parquet files are read in batches of rows, the next one while the last one is predicted; CSV files as a whole. A
    file is moved into place when it is complete. Files of this model that are in the folder already are left out.

    Raises
    ------
    InvalidOption
        There is no folder, two files would get the same file of predictions, or the folder has a file of that name that
        is of no or another model.
    BadInput
        A file has another ending, cannot be read, or has rows that the source rejects; the files before it are written.
    """
    if folder is None or (folder.suffix and not folder.is_dir()):
        raise InvalidOption(
            f"give a folder for the predictions of several files, such as --output scores/; got {folder}"
        )
    targets = {folder / f"{stem(path)}.parquet": path for path in paths}
    if len(targets) < len(paths):
        raise InvalidOption("two files of rows would get the same file of predictions; predict them into two folders.")
    folder.mkdir(parents=True, exist_ok=True)
    if files := [path.name for target, path in targets.items() if target.exists() and target.samefile(path)]:
        raise InvalidOption(f"{folder} is the folder of {join_some(files)}; give another one for the predictions.")
    missing = {target: path for target, path in targets.items() if not target.exists()}
    digest = sha256(model.read_bytes()).hexdigest().encode()
    if others := [target.name for target in targets if target not in missing and _model_of(target) != digest]:
        raise InvalidOption(
            f"{folder} has files that are no predictions of {model}: {join_some(others)}. Give another folder, or "
            "delete them."
        )
    net: Translation = load(model)
    with show_progress(True), Phase("predicting files", total=len(missing)) as phase:
        for target, path in missing.items():
            try:
                _predict_file(net, path, target, digest)
            except BadInput as error:
                raise BadInput(str(error) if str(path) in str(error) else f"{path}: {error}") from error
            phase.advance()
    return [*missing]


def _model_of(path: Path) -> bytes | None:
    """The SHA-256 of the model whose predictions a file holds; None for a file that ``predict_files`` did not write."""
    with explain_damage(path):
        return (pq.read_schema(path).metadata or {}).get(MODEL_KEY)


def _predict_file(net: Translation, path: Path, target: Path, model: bytes) -> None:
    tables = (
        pa.Table.from_pandas(predict_frame(net, rows), preserve_index=False) for rows in _ahead(_batches(net, path))
    )
    if (first := next(tables, None)) is None:
        raise BadInput(f"{path} has no rows; leave it out.")
    schema = first.schema.with_metadata({**(first.schema.metadata or {}), MODEL_KEY: model})
    with replacing(target) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table)


def _batches(net: Translation, path: Path) -> Iterator[pd.DataFrame]:
    texts = text_columns(net)
    if not is_parquet(path):
        yield read_rows_of(net, path)
        return
    with explain_damage(path):
        file = pq.ParquetFile(path)
    names = None
    if (read := net.encoder.names) is not None:  # LightGBM writes a blank in a name as an underscore
        names = [name for name in file.schema_arrow.names if name in read or name.replace(" ", "_") in read]
    with file:
        batches = file.iter_batches(BATCH_ROWS, columns=names)
        while True:
            with explain_damage(path):
                if (batch := next(batches, None)) is None:
                    return
            yield spelled_as_in_fitting(net, frame_of(batch, texts))


def _ahead(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """The batches, each read while the one before is worked on."""
    with ThreadPoolExecutor(1) as reader:
        following = reader.submit(next, batches, None)
        while (batch := following.result()) is not None:
            following = reader.submit(next, batches, None)
            yield batch
