"""``check_translator``: what a reader, ours or somebody else's, has to keep; plain asserts, for any test runner."""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from joblib.hashing import NumpyHasher  # type: ignore[import-untyped]
from sklearn.neighbors import BallTree, KDTree
from torch import Tensor, nn

from windtunnel.api.compile import compile
from windtunnel.api.load import load
from windtunnel.api.translate import translate
from windtunnel.api.translation import Translation
from windtunnel.compiler.scripted import script
from windtunnel.errors import BadInput, UnsupportedEstimator
from windtunnel.objectives.losses import pick
from windtunnel.pipeline.graph import Columns, Concatenated, Expression, Raw, Step, Weighted, build_graph
from windtunnel.program.head import METHODS
from windtunnel.translators.registry import supported

FAITHFUL = 0.999
"""The R squared that the answers of ``translate`` keep before any training."""
ODD = (np.nan, np.inf, -np.inf)
SOME = 8
"""Rows that are asked about with an odd number in the first."""


def check_translator(fitted: Any, X: Any, *, tolerance: float = 1e-9, coarse: float = 1e-5, y: Any = None) -> None:
    """Assert that the translation of a fitted estimator is right, saves, compiles and trains.

    What is asserted, in this order:

    - every step has a reader, and ``compile`` leaves none of them on the host;
    - each method that the source has gives its own answers: the same shapes, labels equal and of the same dtype,
      numbers within ``tolerance``, for all rows, for one row, and within ``coarse`` in float32; no method is missing;
    - with NaN or an infinity in a column of floats the translation answers as the source does, or raises ``BadInput``
      where the source rejects it;
    - a saved and loaded translation gives the same bits, and TorchScript what eager torch gives;
    - ``translate`` keeps R squared 0.999 of the answers before training, and the gradient is finite and reaches every
      parameter; a reader registered with ``differentiable=False`` may reject ``translate`` instead;
    - the fitted estimator and the rows are what they were.

    Parameters
    ----------
    fitted : fitted estimator or Pipeline
        With the class that the reader is registered for, alone or as a step.
    X : DataFrame or ndarray
        Rows to ask about, at least two, in the form that it was fitted on. The more awkward they are (unseen
        categories, missing values, constant columns), the more the check is worth.
    tolerance, coarse : float
        Relative and absolute, of numbers in float64 and in float32. Raise ``coarse`` where float32 rounds away what the
        step computes with, such as small differences of large numbers.
    y : array, optional
        Targets of the rows. With them the gradient is that of the loss that fine-tuning minimises, otherwise that of
        the sum of the raw scores.

    Raises
    ------
    AssertionError
        The first thing that is wrong: which method, on which rows, by how much.
    """
    assert len(X) >= 2, f"{len(X)} rows; give at least 2, better a hundred."
    _ask(fitted, X)  # once, so that what it keeps of its answers is in place
    before = fingerprint(fitted), fingerprint(X)
    net = compile(fitted)
    _check_readers(net, fitted)
    _check_answers(net, fitted, X, tolerance, "all rows")
    _check_answers(net, fitted, X[:1], tolerance, "one row")
    _check_answers(compile(fitted, dtype=torch.float32), fitted, X, coarse, "all rows, in float32")
    _check_odd_numbers(net, fitted, X, tolerance)
    _check_saved(net, fitted, X)
    _check_scripted(net, X, tolerance)
    soft = _translated(fitted, X, "cache" if net.hosts else "error")
    if soft is not None:
        assert soft.fidelity is not None
        r2 = soft.fidelity.r2
        assert r2 >= FAITHFUL, (
            f"translate keeps R squared {r2:.5f} of the answers before training; at least {FAITHFUL}."
        )
        _check_scripted(soft, X, coarse)
        _check_gradient(soft, X, y)
    after = fingerprint(fitted), fingerprint(X)
    assert after[0] == before[0], "the fitted estimator is not what it was; a reader leaves it untouched: copy arrays."
    assert after[1] == before[1], "the rows are not what they were; a module may not write into its input."


class _Hasher(NumpyHasher):
    """joblib's hash, but for the trees of neighbours, which count the questions that they are asked."""

    def save(self, obj: Any) -> None:
        super().save([np.asarray(one) for one in obj.get_arrays()] if isinstance(obj, KDTree | BallTree) else obj)


def fingerprint(value: Any) -> str:
    """A hash of an estimator or of rows, equal as long as nothing in them has changed."""
    return str(_Hasher(hash_name="md5").hash(value))


def _check_readers(net: Translation, fitted: Any) -> None:
    hosts = "; ".join(f"{host.name!r}: {host.reason}" for host in net.hosts if host.tokens is None)
    assert not hosts, f"steps stay on the host, as nothing reads them: {hosts}"
    for method in METHODS:
        ours, theirs = method in net.head.methods, hasattr(fitted, method)
        assert ours == theirs, f"{method}: the source {_has(theirs)} it, the translation {_has(ours)} it."


def _has(there: bool) -> str:
    return "has" if there else "does not have"


# Answers


def _ask(source: Any, rows: Any, only: tuple[str, ...] = METHODS) -> dict[str, list[np.ndarray]]:
    """What each method gives, dense; a list, as there may be several targets. Warnings are the source's own affair."""
    answers = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for method in only:
            if method in source.head.methods if isinstance(source, Translation) else hasattr(source, method):
                given = getattr(source, method)(rows)
                answers[method] = [_dense(one) for one in (given if isinstance(given, list) else [given])]
    return answers


def _dense(answer: Any) -> np.ndarray:
    return np.asarray(answer.toarray() if hasattr(answer, "toarray") else answer)


def _check_answers(net: Translation, fitted: Any, rows: Any, tolerance: float, where: str) -> None:
    ours, theirs = _ask(net, rows), _ask(fitted, rows)
    for method, wanted in theirs.items():
        _check_same(ours[method], wanted, method, tolerance, where)


def _check_same(ours: list[np.ndarray], theirs: list[np.ndarray], method: str, tolerance: float, where: str) -> None:
    where = f"{method}, {where}"
    assert len(ours) == len(theirs), f"{where}: {len(ours)} arrays; the source gives {len(theirs)}."
    for got, want in zip(ours, theirs, strict=True):
        assert got.shape == want.shape, f"{where}: shape {got.shape}; the source gives {want.shape}."
        if method == "predict" and want.dtype.kind != "f":
            assert got.dtype == want.dtype, f"{where}: labels of dtype {got.dtype}; the source gives {want.dtype}."
            wrong = np.flatnonzero((got != want).reshape(len(got), -1).any(axis=1))
            assert not len(wrong), (
                f"{where}: {len(wrong)} of {len(got)} labels differ; row {wrong[0]} is {got[wrong[0]]}, "
                f"the source says {want[wrong[0]]}."
            )
        else:
            np.testing.assert_allclose(got, want.astype(np.float64), tolerance, tolerance, err_msg=where)


# Rows that are rejected


def _check_odd_numbers(net: Translation, fitted: Any, X: Any, tolerance: float) -> None:
    method = next(method for method in METHODS if hasattr(fitted, method))
    for name, value, rows in _odd_rows(X):
        where = f"{value} in column {name!r}"
        try:
            wanted = _ask(fitted, rows, (method,))[method]
        except Exception:  # libraries have errors of their own
            wanted = None
        try:
            got = _ask(net, rows, (method,))[method]
        except BadInput:
            # A prediction that is no number is rejected, whatever the source makes of it.
            nothing = wanted is None or any(one.dtype.kind == "f" and np.isnan(one).any() for one in wanted)
            assert nothing, f"{method}, {where}: the translation raises BadInput, and the source answers."
            continue
        assert wanted is not None, f"{method}, {where}: the source rejects it, and the translation answers."
        _check_same(got, wanted, method, tolerance, where)


def _odd_rows(X: Any) -> Iterator[tuple[Any, float, Any]]:
    """Copies of some rows, with NaN or an infinity in the first of them, column by column of floats."""
    names = list(X.columns) if isinstance(X, pd.DataFrame) else list(range(np.shape(X)[1] if np.ndim(X) == 2 else 0))
    for column, name in enumerate(names):
        values = X.iloc[:SOME, column].to_numpy() if isinstance(X, pd.DataFrame) else X[:SOME, column]
        for value in ODD if np.asarray(values).dtype.kind == "f" else ():
            rows = X[:SOME].copy()
            if isinstance(X, pd.DataFrame):
                rows.isetitem(
                    column, pd.Series(np.r_[value, values[1:]], index=rows.index, dtype=X.dtypes.iloc[column])
                )
            else:
                rows[0, column] = value
            yield name, value, rows


# Files and programs


def _check_saved(net: Translation, fitted: Any, X: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        net.save(Path(folder) / "net.windtunnel")
        again: Translation = load(Path(folder) / "net.windtunnel", host=fitted if net.hosts else None)
    ours, theirs = _ask(again, X), _ask(net, X)
    assert ours.keys() == theirs.keys(), f"saved and loaded, it has {[*ours]}; before it had {[*theirs]}."
    for method, wanted in theirs.items():
        for got, want in zip(ours[method], wanted, strict=True):
            same = got.dtype == want.dtype and np.array_equal(got, want, equal_nan=want.dtype.kind == "f")
            assert same, f"{method}: saved and loaded, the answers have other bits; are all facts in FACTS?"


def _check_scripted(net: Translation, X: Any, tolerance: float) -> None:
    """The whole program, and each step that stands beside it for a method."""
    program = copy.deepcopy(net.program).eval().requires_grad_(False)
    batch = net.encode(X)
    _check_eager(program, tuple(batch), tolerance, "the program")
    values = list(batch)
    for step in program.steps:
        values.append(step(values))
    for method, step in program.method_steps.items():
        _check_eager(step.module, (step.gather(values),), tolerance, method)  # type: ignore[operator, arg-type]


def _check_eager(module: nn.Module, given: tuple[Tensor, ...], tolerance: float, where: str) -> None:
    scripted, want = script(copy.deepcopy(module)), module(*given)
    for _ in range(3):  # the interpreter optimises with what it has seen
        torch.testing.assert_close(
            scripted(*given),
            want,
            rtol=tolerance,
            atol=tolerance,
            equal_nan=True,
            msg=lambda text: f"{where}: TorchScript gives something else than eager torch. {text}",  # noqa: B023
        )


# Training


def _translated(fitted: Any, X: Any, untranslated: str) -> Translation | None:
    """The differentiable translation; None where a reader says that there is none."""
    known = {entry.estimator: entry for entry in supported()}
    steps = [type(step.estimator) for step in _steps(build_graph(fitted))]
    exact_only = [cls.__name__ for cls in steps if not known[cls].differentiable]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an R squared that is too low is an error here
        try:
            return translate(fitted, calibrate=X, untranslated=untranslated)
        except UnsupportedEstimator as error:
            assert exact_only, f"every reader is registered as differentiable, and translate rejects: {error}"
            return None


def _steps(expression: Expression) -> Iterator[Step]:
    match expression:
        case Raw():
            return
        case Concatenated(parts=parts):
            for part in parts:
                yield from _steps(part)
        case Columns(inputs=inputs) | Weighted(inputs=inputs):
            yield from _steps(inputs)
        case Step(inputs=inputs):
            yield from _steps(inputs)
            yield expression


def _check_gradient(net: Translation, X: Any, y: Any) -> None:
    batch = net.encode(X)
    numbers = batch.numbers.clone().requires_grad_()
    scores = net.train()(numbers, batch.ids)
    trainable = {name: one for name, one in net.program.named_parameters() if one.requires_grad and one.numel()}
    assert scores.requires_grad or not (trainable or numbers.numel()), (
        "registered as differentiable, and no gradient comes out; register it with differentiable=False."
    )
    if not scores.requires_grad:
        return
    finite = torch.isfinite(scores.detach())
    if y is None or net.head.loss == "unknown":
        value = scores[finite].sum()
    else:
        rows = finite.all(dim=1)
        value = pick(None, net.head)(scores[rows], net.head.encode_target(np.asarray(y))[rows], None)
    torch.autograd.backward(value)
    for name, parameter in trainable.items():
        assert parameter.grad is not None, f"no gradient reaches the parameter {name}."
        assert torch.isfinite(parameter.grad).all(), f"the gradient of the parameter {name} is not finite."
    if numbers.grad is not None:
        odd = ~torch.isfinite(numbers.grad) & torch.isfinite(numbers.detach()) & finite.all(dim=1, keepdim=True)
        where = sorted({net.encoder.column_name(net.encoder.numbers[int(column)]) for column in odd.nonzero()[:, 1]})
        assert not where, f"the gradient that reaches the columns {', '.join(where)} is not finite."
