"""Parquet files as one sequence of row groups, read one group at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from glob import glob
from hashlib import blake2b
from os import PathLike
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from windtunnel.errors import BadFile, BadInput, join_some

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


@dataclass(frozen=True)
class RowGroups:
    """The file, position and number of rows of each row group that is not empty."""

    files: list[str]  # sorted by name within a folder or pattern
    places: list[tuple[int, int]]  # the file of each row group, and its position in that file
    sizes: NDArray[np.int64]  # rows of each row group
    schema: pa.Schema  # schema of the first file

    @classmethod
    def of(cls, paths: Paths) -> RowGroups:
        """Read the metadata of files, folders and patterns such as ``"folder/*.parquet"``."""
        files = _files(paths)
        places, sizes, schema = [], [], None
        for number, file in enumerate(files):
            try:
                with pq.ParquetFile(file) as parquet:
                    metadata, columns = parquet.metadata, parquet.schema_arrow
            except (OSError, pa.ArrowException) as error:
                raise BadFile(
                    f"{file} is damaged or no Parquet file ({error}); leave it out or write it anew"
                ) from error
            schema = columns if schema is None else schema
            if twice := sorted({name for name in columns.names if columns.names.count(name) > 1}):
                raise BadInput(f"{file} has several columns of one name: {twice}; write it with a name for each")
            if [*columns.names] != [*schema.names]:
                different = sorted({*columns.names} ^ {*schema.names}) or "their order"
                raise BadInput(f"{file} and {files[0]} differ in their columns: {different}; stream files of one table")
            counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
            places += [(number, group) for group, rows in enumerate(counts) if rows]
            sizes += [rows for rows in counts if rows]
        if not sizes:
            raise BadInput(f"{join_some(files, 3)} hold no rows; give at least one")
        return cls(files, places, np.array(sizes, dtype=np.int64), schema)

    @cached_property
    def rows(self) -> int:
        """The number of all rows."""
        return int(self.sizes.sum())

    @cached_property
    def fingerprint(self) -> str:
        """A hash of file names, positions and sizes of the row groups in their order."""
        listed = [(Path(self.files[file]).name, number) for file, number in self.places]
        return blake2b(repr((listed, self.sizes.tolist())).encode(), digest_size=8).hexdigest()

    def where(self, group: int) -> str:
        """The name of a row group for messages."""
        file, number = self.places[group]
        return f"row group {number} of {self.files[file]}"

    def texts(self, columns: Iterable[str]) -> list[str]:
        """The columns among these that hold texts."""
        kinds = (pa.types.is_string, pa.types.is_large_string)
        return [name for name in columns if any(kind(self.schema.field(name).type) for kind in kinds)]

    def read(self, group: int, columns: list[str], dictionary_columns: list[str]) -> pa.Table:
        """Read columns of a row group, ``dictionary_columns`` as dictionaries with each text once.

        ``BadFile`` if it cannot be read, or has changed since its metadata were read.
        """
        file, number = self.places[group]
        try:
            # One thread, because training needs the others.
            with pq.ParquetFile(self.files[file], read_dictionary=dictionary_columns) as parquet:
                table = parquet.read_row_group(number, columns=columns, use_threads=False)
        # pyarrow raises KeyError if a text column holds lists in this file.
        except (OSError, pa.ArrowException, KeyError, IndexError) as error:
            raise BadFile(
                f"{self.where(group)} cannot be read ({error}): it is damaged, gone, of other types than the first "
                "file, or was written anew since the stream was made; mend it, and make the stream again"
            ) from error
        if len(table) != self.sizes[group] or {*table.column_names} != {*columns}:
            raise BadFile(
                f"{self.where(group)} had {self.sizes[group]} rows of {sorted(columns)} and now has {len(table)} of "
                f"{sorted(table.column_names)}: it was written anew; make the stream again"
            )
        # pandas would make an index from the metadata.
        return table.replace_schema_metadata(None)


def _files(paths: Paths) -> list[str]:
    patterns = [paths] if isinstance(paths, str | PathLike) else [*paths]
    files: list[str] = []
    for path in map(str, patterns):
        matches = sorted(map(str, Path(path).glob("*.parquet"))) if Path(path).is_dir() else sorted(_matches(path))
        if not matches:
            raise BadInput(f"no Parquet file at {path!r}; give a file, a folder of *.parquet, or a pattern")
        files += matches
    if not files:
        raise BadInput("no paths; give a file, a folder of *.parquet, or a pattern")
    return list(dict.fromkeys(files))


def _matches(path: str) -> list[str]:
    return [path] if Path(path).is_file() else glob(path, recursive=True)
