"""Features from a key-value store, such as Redis."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping, Sequence
from functools import cache
from inspect import isawaitable
from numbers import Integral
from threading import Thread
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from windtunnel.errors import BadInput, InvalidOption


class Lookup(TransformerMixin, BaseEstimator):
    """Look up the features of each row in a store.

    A value of the store is a number, a sequence of numbers, or one of these as JSON text or bytes; all values have the
    same length. Every key is looked up once per call. A store with ``mget`` (Redis) is asked for many keys at once; if
    that is asynchronous, as that of ``redis.asyncio``, its requests wait at the same time. A key that the store lacks
    gives NaN.

    In a translation this step stays on the host: no file holds its store.

    Parameters
    ----------
    store : mapping, or client with ``mget(keys)``
        Copies of the estimator share it.
    key : str, optional
        Makes the key of a row, such as ``"user:{}"``; a pair of braces stands for a column. By default the key is the
        value of the only column, or the tuple of the values of several.
    batch_size : int, default 1000
        The most keys per request to a client.

    Attributes
    ----------
    width_ : int
        The number of features.
    n_features_in_ : int

    Examples
    --------
    >>> from windtunnel import Lookup
    >>> songs = {"song:7": [0.5, 120.0], "song:9": "[0.25, 90]"}
    >>> Lookup(songs, "song:{}").fit_transform([[9], [7], [8]]).tolist()
    [[0.25, 90.0], [0.5, 120.0], [nan, nan]]
    """

    def __init__(self, store: Any, key: str | None = None, *, batch_size: int = 1000) -> None:
        self.store = store
        self.key = key
        self.batch_size = batch_size

    def __sklearn_clone__(self) -> Lookup:
        return Lookup(self.store, self.key, batch_size=self.batch_size)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the number of features from the rows ``[B, columns]``; ``y`` is not used."""
        if not (hasattr(self.store, "mget") or isinstance(self.store, Mapping)):
            raise InvalidOption(
                f"Lookup got a store of type {type(self.store).__name__}; accepted are mappings and clients with mget."
            )
        if self.batch_size < 1:
            raise InvalidOption(f"Lookup got batch_size={self.batch_size}; accepted are whole numbers from 1 up.")
        rows = _table(X)
        self.n_features_in_ = rows.shape[1]
        self.whole_ = [all(isinstance(value, Integral) for value in column) for column in rows.T.tolist()]
        values = [value for value in self._values(self._keys(rows)).values() if value is not None]
        if not values:
            raise BadInput(f"no key of the {len(rows)} rows is in the store; check key={self.key!r}.")
        self.width_ = len(values[0])
        self._check_widths(values)
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        """The features of the rows, float64 ``[B, width_]``."""
        check_is_fitted(self, "width_")
        rows = _table(X)
        if rows.shape[1] != self.n_features_in_:
            raise BadInput(f"Lookup got {rows.shape[1]} columns; it was fitted on {self.n_features_in_}.")
        keys = self._keys(rows)
        values = self._values(keys)
        self._check_widths([value for value in values.values() if value is not None])
        missing = np.full(self.width_, np.nan)
        table = np.array([missing if value is None else value for value in values.values()]).reshape(-1, self.width_)
        positions = {key: position for position, key in enumerate(values)}
        return table[[positions[key] for key in keys]]

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the features: lookup0, lookup1, ..."""
        check_is_fitted(self, "width_")
        return np.array([f"lookup{number}" for number in range(self.width_)], dtype=object)

    def _keys(self, rows: NDArray[Any]) -> list[Any]:
        rows = rows.copy()
        for column in np.flatnonzero(self.whole_):  # pandas makes 7.0 of 7 where another row is missing
            rows[:, column] = [_whole(value) for value in rows[:, column].tolist()]
        if self.key is not None:
            return [self.key.format(*row) for row in rows.tolist()]
        return rows[:, 0].tolist() if rows.shape[1] == 1 else [*map(tuple, rows.tolist())]

    def _values(self, keys: Sequence[Any]) -> dict[Any, NDArray[np.float64] | None]:
        """The features of each key, in the order of the keys; None for those that the store lacks."""
        unique = list(dict.fromkeys(keys))
        if hasattr(self.store, "mget"):
            starts = range(0, len(unique), self.batch_size)
            batches = [self.store.mget(unique[start : start + self.batch_size]) for start in starts]
            if batches and isawaitable(batches[0]):
                batches = _gathered(batches)
            stored = [value for batch in batches for value in batch]
        else:
            stored = [self.store.get(key) for key in unique]
        return {key: None if value is None else _numbers(key, value) for key, value in zip(unique, stored, strict=True)}

    def _check_widths(self, values: Sequence[NDArray[np.float64]]) -> None:
        if wrong := {len(value) for value in values} - {self.width_}:
            raise BadInput(f"the store has values of {self.width_} and of {wrong.pop()} numbers; all need the same.")


def _table(X: Any) -> NDArray[Any]:
    """Rows as an array of Python values."""
    rows = X.to_numpy(dtype=object) if hasattr(X, "to_numpy") else np.asarray(X, dtype=object)
    return rows.reshape(-1, 1) if rows.ndim == 1 else rows


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _numbers(key: Any, value: Any) -> NDArray[np.float64]:
    try:
        loaded = json.loads(value) if isinstance(value, str | bytes) else value
        return np.asarray(loaded, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"the store's value of {key!r} is {value!r:.80}; accepted are numbers, sequences of numbers, and these as "
            "JSON."
        ) from error


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """A loop that runs in a thread of its own; a client's connections belong to the loop that they were made in."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="windtunnel-lookup", daemon=True).start()
    return loop


def _gathered(batches: Sequence[Awaitable[Any]]) -> list[Any]:
    async def gather() -> list[Any]:
        return await asyncio.gather(*batches)

    return asyncio.run_coroutine_threadsafe(gather(), _event_loop()).result()
