"""A synthetic click log for demos and tests, in memory or as Parquet files of any size.

python -m windtunnel.clicklog folder --rows 20000000
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from numpy.typing import NDArray
from scipy.optimize import bisect
from scipy.special import expit

from windtunnel.errors import BadInput

CATEGORIES = {
    "site": 600,
    "app": 250,
    "device": 5,
    "campaign": 150,
    "creative": 3000,
    "publisher": 1200,
    "region": 50,
    "hour": 24,
}
"""Categorical columns and how many categories each can take."""

POSITIVES, MISSING = 0.2, 0.05
RANK = 4
AT_ONCE, ROW_GROUP = 1_000_000, 100_000
"""Rows of a Parquet file, and of a row group in it."""
# Standard deviations of parts of the log-odds: each category's effect, all interactions together, noise.
EFFECT, INTERACTION, NOISE = 0.42, 1.1, 0.2


def click_log(rows: int = 60_000, *, seed: int = 0) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Draw impressions of advertisements and whether each was clicked.

    The target is drawn from Bernoulli(p) with

        log(p / (1 - p)) = c + sum_i w[i, x_i] + sum_{i<j} <v[i, x_i], v[j, x_j]> + g(numbers) + noise

    over the categorical columns i < j: an effect w per category, and a dot product of latent factors v of rank 4 for
    each pair of categories. Embeddings can learn the factors from 60,000 rows. Trees over encoded categories cannot, as
    few pairs are frequent. c makes the mean of p 0.2.

    Categories follow Zipf's law. The effects, the factors and the names of the categories depend on the seed only, not
    on ``rows``; numbers are rounded, so that a seed gives the same frame on every platform.

    Parameters
    ----------
    rows : int, default 60_000
        Number of impressions, 1 or more.
    seed : int, default 0
        Seed of NumPy's default generator.

    Returns
    -------
    frame : DataFrame [rows, 12]
        Strings: site, app, device, campaign, creative, publisher, region, hour (5 to 3,000 categories). Numbers,
        float64: bid (currency units, skewed), views (earlier impressions, a whole number, skewed), recency (hours since
        the last one, about 5 % missing), viewable (fraction of the advertisement in view, 0 to 1).
    clicked : int64 [rows]
        0 or 1, about 20 % of them 1.

    Examples
    --------
    >>> from windtunnel.clicklog import click_log
    >>> frame, clicked = click_log(1000)
    >>> frame.shape, clicked.shape
    ((1000, 12), (1000,))
    """
    if rows < 1:
        raise BadInput(f"rows={rows}; give 1 or more")
    world, draws = np.random.default_rng(seed).spawn(2)
    columns, clicked, _ = _drawn(rows, world, draws, None)
    return pd.DataFrame({**columns}), clicked


def write_click_log(folder: str | PathLike[str], rows: int, *, seed: int = 0, at_once: int = AT_ONCE) -> list[Path]:
    """Write a click log of any size as Parquet files, ``at_once`` rows in memory at a time.

    Effects, factors and names of the categories are those of ``click_log`` with the same seed, the impressions others.
    c is that of the first file.

    Parameters
    ----------
    folder : path
        For ``clicks-00000.parquet`` and so on, ``at_once`` rows each, in row groups of ``ROW_GROUP``; must not hold
        such files.
    rows : int
        Number of impressions, 1 or more.
    seed : int, default 0
        Seed of NumPy's default generator.
    at_once : int
        Rows per file.

    Returns
    -------
    list of path
        The files: the columns of ``click_log``, and ``clicked``.
    """
    if rows < 1 or at_once < 1:
        raise BadInput(f"rows={rows}, at_once={at_once}; give 1 or more")
    target = Path(folder)
    if any(target.glob("clicks-*.parquet")):
        raise BadInput(f"{target} holds a click log already; give another folder, or empty it")
    target.mkdir(parents=True, exist_ok=True)
    files, intercept = list[Path](), None
    _, draws = np.random.default_rng(seed).spawn(2)
    for number, file_draws in enumerate(draws.spawn(-(-rows // at_once))):
        world, _ = np.random.default_rng(seed).spawn(2)
        count = min(at_once, rows - number * at_once)
        columns, clicked, intercept = _drawn(count, world, file_draws, intercept)
        arrays = {name: pa.array(column, from_pandas=True) for name, column in columns.items()}
        files.append(target / f"clicks-{number:05d}.parquet")
        pq.write_table(pa.table({**arrays, "clicked": clicked}), files[-1], row_group_size=ROW_GROUP)
    return files


def _drawn(
    rows: int, world: np.random.Generator, draws: np.random.Generator, intercept: float | None
) -> tuple[dict[str, Any], NDArray[np.int64], float]:
    """Columns by name, clicks, and the intercept c; None sets c so that the mean is POSITIVES."""
    categories, score = _categories(rows, world, draws)
    numbers = _numbers(rows, draws)
    score += _effect_of(numbers) + draws.normal(0, NOISE, rows)
    numbers["recency"][draws.random(rows) < MISSING] = np.nan
    intercept = _intercept(score) if intercept is None else intercept
    clicked = draws.random(rows) < expit(score + intercept)
    return {**categories, **numbers}, clicked.astype(np.int64), intercept


def _categories(
    rows: int, world: np.random.Generator, draws: np.random.Generator
) -> tuple[dict[str, pd.Series], NDArray[np.float64]]:
    """Draw the categorical columns, and what they add to the log-odds [rows]."""
    columns, score = dict[str, pd.Series](), np.zeros(rows)
    factors, squares = np.zeros((rows, RANK)), np.zeros((rows, RANK))
    # Every pair of columns adds RANK products; together they get the variance INTERACTION squared.
    products = RANK * len(CATEGORIES) * (len(CATEGORIES) - 1) / 2
    deviation = (INTERACTION**2 / products) ** 0.25
    for name, size in CATEGORIES.items():
        names = _names(name, size, world)
        effect, factor = world.normal(0, EFFECT, size), world.normal(0, deviation, (size, RANK))
        drawn = draws.choice(size, rows, p=_zipf(size))
        columns[name] = pd.Series(names[drawn], dtype="str")
        score += effect[drawn]
        factors += factor[drawn]
        squares += factor[drawn] ** 2
    # sum_{i<j} a_i a_j = ((sum_i a_i)^2 - sum_i a_i^2) / 2 in each of the RANK dimensions.
    return columns, score + (factors**2 - squares).sum(axis=1) / 2


def _names(column: str, size: int, world: np.random.Generator) -> NDArray[np.object_]:
    """Names in random order, so that a name does not tell the frequency of its category."""
    digits = len(str(size - 1))
    prefix = "" if column == "hour" else f"{column}_"
    return np.array([f"{prefix}{number:0{digits}d}" for number in world.permutation(size)], dtype=object)


def _zipf(size: int) -> NDArray[np.float64]:
    """Probability of each category, by rank: proportional to 1 / (rank + 2)."""
    weight: NDArray[np.float64] = 1 / np.arange(3.0, size + 3)
    weight /= weight.sum()
    return weight


def _numbers(rows: int, draws: np.random.Generator) -> dict[str, NDArray[np.float64]]:
    return {
        "bid": draws.lognormal(0, 0.8, rows).round(3),
        "views": draws.geometric(0.2, rows).astype(np.float64) - 1,
        "recency": draws.exponential(12, rows).round(2),
        "viewable": draws.beta(2, 1.5, rows).round(3),
    }


def _effect_of(numbers: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Clicks fall with every view, peak a day after the last one, and need a viewable advertisement."""
    tired = -0.55 * np.log1p(numbers["views"])
    recent = 1.4 * np.exp(-(((numbers["recency"] - 24) / 8) ** 2))
    seen = 2.8 * np.minimum(numbers["viewable"], 0.6)
    return tired + recent + seen + 0.4 * np.log1p(numbers["bid"]) * numbers["viewable"]


def _intercept(score: NDArray[np.float64]) -> float:
    """Find the c for which the mean of sigmoid(score + c) is POSITIVES."""
    return float(bisect(lambda c: expit(score + c).mean() - POSITIVES, -50, 50, xtol=1e-15, rtol=1e-15))


def _write(
    folder: Annotated[Path, typer.Argument(help="Where the Parquet files go.")],
    rows: Annotated[int, typer.Option(help="Impressions.")] = 20_000_000,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
) -> None:
    """Write a synthetic click log as Parquet files."""
    files = write_click_log(folder, rows, seed=seed)
    print(
        f"{rows:,} rows in {len(files)} files, {sum(file.stat().st_size for file in files) / 2**20:,.0f} MiB: {folder}"
    )


if __name__ == "__main__":
    typer.run(_write)
