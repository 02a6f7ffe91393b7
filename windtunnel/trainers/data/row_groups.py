"""Parquet files as one sequence of row groups, read one group at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from glob import glob
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from windtunnel.errors import BadFile, BadInput

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


@dataclass(frozen=True)
class RowGroups:
    """Where each row group lies, and how many rows it has; empty ones are left out.

    Attributes
    ----------
    files : list of str
        In the order of their names.
    places : list of (int, int)
        The file of each row group, and its number in it.
    sizes : int64 array
        Rows of each row group.
    schema : pyarrow.Schema
        Of the first file.
    """

    files: list[str]
    places: list[tuple[int, int]]
    sizes: NDArray[np.int64]
    schema: pa.Schema

    @classmethod
    def of(cls, paths: Paths) -> RowGroups:
        """Look at the metadata of files, folders and patterns such as ``"folder/*.parquet"``."""
        files = _files(paths)
        places, sizes, schema = [], [], None
        for number, file in enumerate(files):
            try:
                with pq.ParquetFile(file) as parquet:
                    metadata, own = parquet.metadata, parquet.schema_arrow
            except (OSError, pa.ArrowException) as error:
                raise BadFile(
                    f"{file} is damaged or no Parquet file ({error}); leave it out or write it anew"
                ) from error
            schema = own if schema is None else schema
            if twice := sorted({name for name in own.names if own.names.count(name) > 1}):
                raise BadInput(f"{file} has several columns of one name: {twice}; write it with a name for each")
            if [*own.names] != [*schema.names]:
                odd = sorted({*own.names} ^ {*schema.names}) or "their order"
                raise BadInput(f"{file} and {files[0]} differ in their columns: {odd}; stream files of one table")
            counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
            places += [(number, group) for group, rows in enumerate(counts) if rows]
            sizes += [rows for rows in counts if rows]
        if not sizes:
            raise BadInput(f"{_listed(files)} hold no rows; give at least one")
        return cls(files, places, np.array(sizes, dtype=np.int64), schema)

    @cached_property
    def rows(self) -> int:
        """The number of all rows."""
        return int(self.sizes.sum())

    @cached_property
    def fingerprint(self) -> str:
        """Tells row groups of other sizes, in files of other names, or in another order, from these."""
        listed = [(Path(self.files[file]).name, number) for file, number in self.places]
        return blake2b(repr((listed, self.sizes.tolist())).encode(), digest_size=8).hexdigest()

    def where(self, group: int) -> str:
        """Name a row group, for messages."""
        file, number = self.places[group]
        return f"row group {number} of {self.files[file]}"

    def texts(self, columns: Iterable[str]) -> list[str]:
        """Those of the columns that hold texts."""
        kinds = (pa.types.is_string, pa.types.is_large_string)
        return [name for name in columns if any(kind(self.schema.field(name).type) for kind in kinds)]

    def read(self, group: int, columns: list[str], coded: list[str]) -> pa.Table:
        """The columns of a row group; those ``coded`` come as dictionaries, each text once.

        Raises
        ------
        BadFile
            For what cannot be read, or is not as it was when the metadata was looked at.
        """
        file, number = self.places[group]
        try:
            # One thread: this is the background of a loop that computes.
            with pq.ParquetFile(self.files[file], read_dictionary=coded) as parquet:
                table = parquet.read_row_group(number, columns=columns, use_threads=False)
        # A text column that holds lists in this file is a KeyError.
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
        # What pandas would make of an index stays out.
        return table.replace_schema_metadata(None)


def _files(paths: Paths) -> list[str]:
    given = [paths] if isinstance(paths, str | PathLike) else [*paths]
    found: list[str] = []
    for path in map(str, given):
        here = sorted(map(str, Path(path).glob("*.parquet"))) if Path(path).is_dir() else sorted(_matches(path))
        if not here:
            raise BadInput(f"no Parquet file at {path!r}; give a file, a folder of *.parquet, or a pattern")
        found += here
    if not found:
        raise BadInput("no paths; give a file, a folder of *.parquet, or a pattern")
    return list(dict.fromkeys(found))


def _matches(path: str) -> list[str]:
    return [path] if Path(path).is_file() else glob(path, recursive=True)


def _listed(files: list[Any]) -> str:
    return ", ".join(map(str, files[:3])) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
