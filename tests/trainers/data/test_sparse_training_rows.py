"""Training rows that are given as sparse matrices: of every format, and of many columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

import windtunnel
from windtunnel.trainers.data.encoded_loader import EncodedLoader
from windtunnel.trainers.data.encoded_rows import LazilyEncodedRows
from windtunnel.trainers.data.loader import loader


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
def test_every_format_of_sparse_matrices(kind: str) -> None:
    X, y = sparse.random(60, 4, 0.5, kind, random_state=0), np.arange(60) % 2
    net = windtunnel.translate(LogisticRegression().fit(X.tocsr(), y))
    rows, target = next(iter(loader(net, X, y, shuffle=False)))
    np.testing.assert_array_equal(rows.numbers, X.toarray())
    assert target.tolist() == y.tolist()


def test_wide_sparse_rows_are_not_made_dense_for_a_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    X = sparse.random(3000, 1500, density=0.01, format="csr", random_state=0)
    y = np.asarray(X[:, :50].sum(axis=1)).ravel() > 0.2
    collected: list[int] = []
    monkeypatch.setattr("windtunnel.trainers.data.loader.DENSE_BYTES_OF_FIT", 2**20)

    def collect(self: LazilyEncodedRows, limit: int) -> Any:
        collected.append(self.size)
        return EncodedLoader.collect(self, limit)

    monkeypatch.setattr(LazilyEncodedRows, "collect", collect)
    net = windtunnel.translate(LogisticRegression().fit(X, y))
    net.fit((X[:2000], y[:2000]), (X[2000:], y[2000:]), epochs=1, progress=False, accelerator="cpu")
    assert collected and 2000 not in collected
