"""Sets that need no files: scikit-learn's bundled ones, and two generated tasks of 20,000 rows.

``housing_like`` (regression, after California housing): twelve towns of their own price level lie along a slanting
coast; a row is a district near one of them, with longitude, latitude, median income (log-normal), house age, rooms,
bedrooms, population, people per household, county (58 categories, by place) and ocean (four categories, by the
distance to the coast). The price is the exponential of an income effect that is stronger near the coast, the level of
the nearby towns, a county effect, an effect of crowding that turns round with age, and normal noise with standard
deviation 0.25; as in the original, it is cut at 5 (in 100,000 dollars).

``covertype_like`` (seven classes, after Forest Covertype): elevation, aspect, slope, distances to water, roads and
fires, shade at three hours (made of slope and aspect), wilderness area (four categories) and soil type (forty). Each
class has a best elevation, which soils shift, likes some pairs of area and soil, and some sides of steep slopes; the
class with the highest sum of these and of Gumbel noise is what grows there, so that no model can know it for sure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine

from benchmarks.sets import DataSet

ROWS = 20_000


def housing_like(rows: int = ROWS, seed: int = 0) -> tuple[pd.DataFrame, NDArray[np.float64]]:
    """Districts and their median house price, in 100,000 dollars."""
    random = np.random.default_rng(seed)
    along = random.uniform(0, 1, 12)  # of the coast
    inland = random.exponential(0.8, 12)  # degrees to the east of it
    level = random.normal(0, 0.35, 12)
    town = random.choice(12, rows, p=random.dirichlet(np.full(12, 2.0)))
    latitude = 32.5 + 9 * along[town] + random.normal(0, 0.35, rows)
    coast = np.maximum(inland[town] + random.normal(0, 0.35, rows), 0.01)
    income = np.exp(random.normal(1.2, 0.45, rows) + 0.3 * level[town])
    age = random.integers(1, 53, rows).astype(np.float64)
    rooms = np.maximum(1.5, 4 + 0.5 * income + random.normal(0, 0.9, rows))
    people = np.exp(random.normal(1.05, 0.25, rows))
    county = np.floor((latitude - 31) * 5).astype(int) % 29 + 29 * (coast > 0.9)
    ocean = np.select([coast < 0.15, coast < 0.6, coast < 1.5], ["by the sea", "under an hour", "a day trip"], "inland")
    by_county = random.normal(0, 0.2, 58)
    log_price = (
        0.1
        + (0.55 + 0.35 * np.exp(-coast)) * (np.log(income) - 1.2)
        + 0.4 * np.exp(-2 * coast)
        + level[town]
        + by_county[county]
        + 0.25 * (np.log(people) - 1.05) * np.where(age > 30, -1.5, 1.0)
        + random.normal(0, 0.25, rows)
    )
    X = pd.DataFrame(
        {
            "longitude": -124 + 6 * (41.5 - latitude) / 9 + coast,
            "latitude": latitude,
            "median_income": income,
            "house_age": age,
            "rooms": rooms,
            "bedrooms": rooms / 5 + random.normal(0, 0.1, rows),
            "population": np.round(np.exp(random.normal(7, 0.7, rows))),
            "people_per_household": people,
            "county": pd.Series(county).map("county {:02d}".format).astype("str"),
            "ocean": pd.Series(ocean, dtype="str"),
        }
    )
    return X, np.minimum(np.exp(log_price + 0.5), 5.0)


def covertype_like(rows: int = ROWS, seed: int = 0) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Plots of forest, and which of seven covers grows there."""
    random = np.random.default_rng(seed)
    area = random.choice(4, rows, p=[0.45, 0.05, 0.43, 0.07])
    soil = (random.choice(40, rows, p=random.dirichlet(np.full(40, 0.6))) + 7 * area) % 40
    elevation = random.normal(np.array([3000.0, 3250.0, 2900.0, 2300.0])[area], 230)
    aspect, slope = random.uniform(0, 2 * np.pi, rows), random.gamma(3.5, 4.0, rows)
    water, road, fire = (random.exponential(scale, rows) for scale in (270.0, 2300.0, 2000.0))
    best = np.array([3130.0, 2920.0, 2400.0, 2220.0, 2790.0, 2430.0, 3360.0])
    width = np.array([160.0, 210.0, 190.0, 110.0, 120.0, 170.0, 140.0])
    common = np.array([1.6, 2.0, 0.6, -0.8, -0.6, 0.0, 0.0])
    shift, likes = random.normal(0, 70, 40), random.normal(0, 1.4, (4, 40, 7))
    side, thirst = random.uniform(0, 2 * np.pi, 7), random.normal(0, 0.5, 7)
    steep = np.minimum(slope / 15, 2.0)
    utility = (
        common
        - ((elevation[:, None] - best - shift[soil][:, None]) / width) ** 2 / 2  # [rows, 7]
        + likes[area, soil]
        + 1.3 * np.cos(aspect[:, None] - side) * steep[:, None]
        - thirst * np.log1p(water / 100)[:, None] * np.where(elevation < 2900, 1.0, -0.3)[:, None]
        + random.gumbel(0, 0.6, (rows, 7))
    )
    light = {
        f"shade_{hour}": np.round(220 + 30 * np.sin(np.radians(slope)) * np.cos(aspect - turn)).clip(0, 254)
        for hour, turn in (("9", 1.6), ("noon", 3.1), ("3", 4.7))
    }
    X = pd.DataFrame(
        {
            "elevation": np.round(elevation),
            "aspect": np.round(np.degrees(aspect)),
            "slope": np.round(slope),
            "to_water": np.round(water),
            "to_road": np.round(road),
            "to_fire": np.round(fire),
            **light,
            "area": pd.Series(area).map("area {}".format).astype("str"),
            "soil": pd.Series(soil).map("soil {:02d}".format).astype("str"),
        }
    )
    return X, utility.argmax(axis=1)


def _bundled(load: Callable[..., Any]) -> Callable[[], tuple[pd.DataFrame, NDArray[Any]]]:
    def read() -> tuple[pd.DataFrame, NDArray[Any]]:
        X, y = load(return_X_y=True, as_frame=True)
        return X.rename(columns=str), y.to_numpy()

    return read


BUILT_IN: dict[str, Callable[[], tuple[pd.DataFrame, NDArray[Any]]]] = {
    "breast_cancer": _bundled(load_breast_cancer),
    "digits": _bundled(load_digits),
    "wine": _bundled(load_wine),
    "diabetes": _bundled(load_diabetes),
    "housing_like": housing_like,
    "covertype_like": covertype_like,
}
"""By name: rows, and their target (floats for regression)."""


def load_built_in(name: str) -> DataSet:
    """One of ``BUILT_IN``; 70, 15 and 15 % of its rows, drawn with seed 0, are train, valid and test."""
    X, y = BUILT_IN[name]()
    order = np.random.default_rng(0).permutation(len(y)) / len(y)
    split = np.where(order < 0.70, "train", np.where(order < 0.85, "valid", "test")).astype(object)
    return DataSet(name, X, y, split)
