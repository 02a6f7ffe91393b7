"""Data sets by ``NAME=PATH``: the paper's published files, the generated click log, or a folder that has loaders.

python -m benchmarks.sets --data NAME=PATH [--rows N] [--train-rows N] --output FOLDER

writes FOLDER/rows.parquet, which the configs in configs/paper/ read: the columns, ``target`` and ``split``.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray

from benchmarks.command import command
from benchmarks.published import avazu, criteo, drawn, flight
from windtunnel.clicklog import click_log
from windtunnel.errors import BadInput

PARTS = ("train", "valid", "test")
PUBLISHED = {"criteo": criteo, "avazu": avazu, "flight": flight}
LOADERS = "datasets.py"


@dataclass(frozen=True, eq=False)
class DataSet:
    """Rows, their target, and which of them are for what.

    Attributes
    ----------
    name : str
    X : DataFrame [rows, columns]
        Categories as text, numbers as numbers.
    y : array [rows]
    split : array [rows]
        "train", "valid" or "test" for each row.
    """

    name: str
    X: pd.DataFrame
    y: NDArray[Any]
    split: NDArray[Any]

    def part(self, name: str) -> tuple[pd.DataFrame, NDArray[Any]]:
        """The rows of "train", "valid" or "test", and their target."""
        if name not in PARTS:
            raise BadInput(f"part {name!r}; give one of {', '.join(PARTS)}")
        chosen = self.split == name
        return self.X[chosen].reset_index(drop=True), self.y[chosen]


def load(spec: str, *, rows: int | None = None, seed: int = 0) -> DataSet:
    """Load a data set.

    Parameters
    ----------
    spec : str
        ``NAME=PATH``: criteo, avazu or flight with the published files (``benchmarks.published``); clicklog with the
        number of rows to generate; any other name with a folder whose ``datasets.py`` has ``load(name)``, which gives
        a DataFrame, a target of 0 and 1, and "train", "valid" or "test" for each row.
    rows : int, optional
        Take so many of all its rows at random, in their order; all where there are no more.
    seed : int
        Of that draw.

    Raises
    ------
    BadInput
        Another form of ``spec``, a name that the folder does not know, or what it loads is no data set.
    FileNotFoundError
    """
    name, equals, path = spec.partition("=")
    if not (name and equals and path):
        raise BadInput(f"{spec!r} is no data set; write NAME=PATH, such as criteo=train.txt or clicklog=1000000")
    if name in PUBLISHED:
        return _checked(name, *PUBLISHED[name](Path(path), rows=rows, seed=seed))
    X, y, split = _clicks(path) if name == "clicklog" else load_from(Path(path), name)
    taken = drawn(np.ones(len(X), dtype=bool), rows, 1.0, seed)
    return _checked(name, X[taken].reset_index(drop=True), np.asarray(y)[taken], np.asarray(split)[taken])


def _clicks(rows: str) -> tuple[pd.DataFrame, NDArray[np.int64], NDArray[Any]]:
    """The generated click log: 80 % for training, then 10 and 10 %; its rows are in no order."""
    if not rows.isdecimal() or int(rows) < 1:
        raise BadInput(f"clicklog={rows}; give the number of rows to generate, such as clicklog=1000000")
    X, y = click_log(int(rows))
    at = np.arange(len(X)) / len(X)
    return X, y, np.where(at < 0.8, "train", np.where(at < 0.9, "valid", "test")).astype(object)


def names_in(folder: Path) -> list[str]:
    """The data sets of a folder: ``NAMES`` of its ``datasets.py``."""
    names: list[str] = [*_loaders(folder).NAMES]
    return names


def load_from(folder: Path, name: str) -> tuple[pd.DataFrame, NDArray[Any], NDArray[Any]]:
    """Rows, target and the part of each row, by ``load`` of the folder's ``datasets.py``."""
    loaders = _loaders(folder)
    try:
        loaded: tuple[pd.DataFrame, NDArray[Any], NDArray[Any]] = loaders.load(name)
    except (KeyError, ValueError) as error:
        raise BadInput(f"{folder / LOADERS} does not load {name!r}: {error}") from error
    return loaded


def _loaders(folder: Path) -> ModuleType:
    file = folder / LOADERS
    if not file.is_file():
        raise FileNotFoundError(f"no file {file}; give a folder with a {LOADERS} that has NAMES and load(name)")
    spec = importlib.util.spec_from_file_location("datasets_of_folder", file)
    assert spec is not None and spec.loader is not None  # the name ends in .py
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _checked(name: str, X: pd.DataFrame, y: NDArray[Any], split: NDArray[Any]) -> DataSet:
    split = np.asarray(split, dtype=object)
    if not len(X) == len(y) == len(split):
        raise BadInput(
            f"{name}: {len(X)} rows, {len(y)} targets and {len(split)} parts; there has to be one for each row"
        )
    if unknown := sorted({str(part) for part in set(split)} - set(PARTS)):
        raise BadInput(f"{name}: parts {', '.join(unknown[:5])}; each row is of one of {', '.join(PARTS)}")
    if empty := [part for part in PARTS if not (split == part).any()]:
        raise BadInput(f"{name}: no rows for {', '.join(empty)}; take more rows")
    return DataSet(name, X, np.asarray(y), split)


app = command()


@app.callback()
def main(
    data: Annotated[str, typer.Option(help="NAME=PATH.")],
    output: Annotated[Path, typer.Option(help="Folder for rows.parquet.")],
    rows: Annotated[int | None, typer.Option(help="Take so many rows at random.")] = None,
    train_rows: Annotated[int | None, typer.Option(help="Of these, keep so many training rows.")] = None,
) -> None:
    """Write a data set as one Parquet file with the columns ``target`` and ``split``."""
    given = load(data, rows=rows)
    kept = (given.split != "train") | drawn(given.split == "train", train_rows, 1.0, 0)
    given = DataSet(given.name, given.X[kept].reset_index(drop=True), given.y[kept], given.split[kept])
    output.mkdir(parents=True, exist_ok=True)
    given.X.assign(target=given.y, split=given.split.astype("str")).to_parquet(output / "rows.parquet", index=False)
    typer.echo(f"wrote {len(given.y):,} rows of {given.name} to {output / 'rows.parquet'}")


if __name__ == "__main__":
    app()
