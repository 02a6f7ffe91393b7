"""``check_translator``: the checks that every converter must pass, as plain asserts for any test runner."""

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
from windtunnel.objectives.losses import loss_for
from windtunnel.pipeline.expressions import steps_of
from windtunnel.pipeline.graph import build_graph
from windtunnel.program.head import METHODS
from windtunnel.program.records.fidelity import LEAST_R2
from windtunnel.translators.registry import supported

NON_FINITE = (np.nan, np.inf, -np.inf)
PROBE_ROWS = 8
"""Rows of a probe with a non-finite number in the first."""


def check_translator(fitted: Any, X: Any, *, tolerance: float = 1e-9, coarse: float = 1e-5, y: Any = None) -> None:
    """Assert that the translation of a fitted estimator is exact, saves, compiles and trains.

    The checks, in this order:

    - every step has a converter, and ``compile`` leaves no step on the host;
    - each method of the source has the same output: equal shapes, equal labels of the same dtype, numbers within
      ``tolerance``, for all rows and for one row, natively and in torch, and within ``coarse`` in float32; no method is
      missing;
    - with NaN or an infinity in a column of floats the translation has the source's output, or raises ``BadInput`` if
      the source rejects the row;
    - a saved and loaded translation returns the same bits, and TorchScript the numbers of eager torch;
    - ``translate`` has an R squared of 0.999 or more before training, and the gradient is finite and reaches every
      parameter; for a converter registered with ``differentiable=False`` it may raise instead;
    - the fitted estimator and the rows are unchanged.

    Parameters
    ----------
    fitted : fitted estimator or Pipeline
        Of the class that the converter is registered for, alone or as a step.
    X : DataFrame or ndarray
        At least two rows to predict, in the form that it was fitted on. Unseen categories, missing values and constant
        columns make the check stricter.
    tolerance, coarse : float
        Relative and absolute, of numbers in float64 and in float32. Raise ``coarse`` if the step computes with numbers
        that float32 rounds off, such as small differences of large numbers.
    y : array, optional
        Targets of the rows. The gradient is that of the default loss of fine-tuning then, otherwise that of the sum of
        the raw scores.

    Raises
    ------
    AssertionError
        The first check that fails: which method, on which rows, by how much.
    """
    assert len(X) >= 2, f"{len(X)} rows; give at least 2, better a hundred."
    _outputs(fitted, X)  # once, as an estimator may cache something
    before = fingerprint(fitted), fingerprint(X)
    net = compile(fitted)
    _check_converters(net, fitted)
    _check_outputs(net, fitted, X, tolerance, "all rows")
    _check_outputs(net, fitted, X[:1], tolerance, "one row")
    _check_outputs(compile(fitted, backend="torch"), fitted, X, tolerance, "all rows, in torch")
    _check_outputs(compile(fitted, dtype=torch.float32), fitted, X, coarse, "all rows, in float32")
    _check_non_finite_numbers(net, fitted, X, tolerance)
    _check_saved(net, fitted, X)
    _check_scripted(net, X, tolerance)
    soft = _translated(fitted, X, "cache" if net.hosts else "error")
    if soft is not None:
        assert soft.fidelity is not None
        r2 = soft.fidelity.r2
        assert r2 >= LEAST_R2, f"R squared of translate before training is {r2:.5f}; at least {LEAST_R2}."
        _check_scripted(soft, X, coarse)
        _check_gradient(soft, X, y)
    after = fingerprint(fitted), fingerprint(X)
    assert after[0] == before[0], "the fitted estimator has changed; a converter must not change it: copy arrays."
    assert after[1] == before[1], "the rows have changed; a module may not write into its input."


class _Hasher(NumpyHasher):
    """joblib's hash; for trees of neighbours, which count their queries, a hash of their arrays."""

    def save(self, obj: Any) -> None:
        super().save([np.asarray(array) for array in obj.get_arrays()] if isinstance(obj, KDTree | BallTree) else obj)


def fingerprint(value: Any) -> str:
    """A hash of an estimator or of rows, equal as long as they are unchanged."""
    return str(_Hasher(hash_name="md5").hash(value))


def _check_converters(net: Translation, fitted: Any) -> None:
    hosts = "; ".join(f"{host.name!r}: {host.reason}" for host in net.hosts if host.tokens is None)
    assert not hosts, f"steps stay on the host, as no converter takes them: {hosts}"
    for method in METHODS:
        ours, theirs = method in net.head.methods, hasattr(fitted, method)
        assert ours == theirs, f"{method}: the source {_has(theirs)} it, the translation {_has(ours)} it."


def _has(present: bool) -> str:
    return "has" if present else "does not have"


# Outputs


def _outputs(source: Any, rows: Any, only: tuple[str, ...] = METHODS) -> dict[str, list[np.ndarray]]:
    """The dense outputs of each method, a list with an array per target. Warnings of the source are ignored."""
    outputs = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for method in only:
            if method in source.head.methods if isinstance(source, Translation) else hasattr(source, method):
                output = getattr(source, method)(rows)
                outputs[method] = [_dense(part) for part in (output if isinstance(output, list) else [output])]
    return outputs


def _dense(output: Any) -> np.ndarray:
    return np.asarray(output.toarray() if hasattr(output, "toarray") else output)


def _check_outputs(net: Translation, fitted: Any, rows: Any, tolerance: float, where: str) -> None:
    ours, theirs = _outputs(net, rows), _outputs(fitted, rows)
    for method, wanted in theirs.items():
        _check_same(ours[method], wanted, method, tolerance, where)


def _check_same(ours: list[np.ndarray], theirs: list[np.ndarray], method: str, tolerance: float, where: str) -> None:
    where = f"{method}, {where}"
    assert len(ours) == len(theirs), f"{where}: {len(ours)} arrays; the source returns {len(theirs)}."
    for got, want in zip(ours, theirs, strict=True):
        assert got.shape == want.shape, f"{where}: shape {got.shape}; the source returns {want.shape}."
        if method == "predict" and want.dtype.kind != "f":
            assert got.dtype == want.dtype, f"{where}: labels of dtype {got.dtype}; the source returns {want.dtype}."
            wrong = np.flatnonzero((got != want).reshape(len(got), -1).any(axis=1))
            assert not len(wrong), (
                f"{where}: {len(wrong)} of {len(got)} labels differ; row {wrong[0]} is {got[wrong[0]]}, "
                f"the source returns {want[wrong[0]]}."
            )
        else:
            np.testing.assert_allclose(got, want.astype(np.float64), tolerance, tolerance, err_msg=where)


# Rows that are rejected


def _check_non_finite_numbers(net: Translation, fitted: Any, X: Any, tolerance: float) -> None:
    method = next(method for method in METHODS if hasattr(fitted, method))
    for name, value, rows in _non_finite_rows(X):
        where = f"{value} in column {name!r}"
        try:
            wanted = _outputs(fitted, rows, (method,))[method]
        except Exception:  # libraries have errors of their own
            wanted = None
        try:
            got = _outputs(net, rows, (method,))[method]
        except BadInput:
            # The translation rejects rows whose prediction is NaN too.
            rejected = wanted is None or any(part.dtype.kind == "f" and np.isnan(part).any() for part in wanted)
            assert rejected, f"{method}, {where}: the translation raises BadInput, and the source does not."
            continue
        assert wanted is not None, f"{method}, {where}: the source rejects it, and the translation does not."
        _check_same(got, wanted, method, tolerance, where)


def _non_finite_rows(X: Any) -> Iterator[tuple[Any, float, Any]]:
    """Copies of some rows with NaN or an infinity in the first, for each column of floats."""
    names = list(X.columns) if isinstance(X, pd.DataFrame) else list(range(np.shape(X)[1] if np.ndim(X) == 2 else 0))
    for column, name in enumerate(names):
        values = X.iloc[:PROBE_ROWS, column].to_numpy() if isinstance(X, pd.DataFrame) else X[:PROBE_ROWS, column]
        for value in NON_FINITE if np.asarray(values).dtype.kind == "f" else ():
            rows = X[:PROBE_ROWS].copy()
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
    ours, theirs = _outputs(again, X), _outputs(net, X)
    assert ours.keys() == theirs.keys(), f"saved and loaded, it has {[*ours]}; before it had {[*theirs]}."
    for method, wanted in theirs.items():
        for got, want in zip(ours[method], wanted, strict=True):
            same = got.dtype == want.dtype and np.array_equal(got, want, equal_nan=want.dtype.kind == "f")
            assert same, f"{method}: saved and loaded, the output has other bits; are all facts in FACTS?"


def _check_scripted(net: Translation, X: Any, tolerance: float) -> None:
    """The whole program, and the step of each method."""
    program = copy.deepcopy(net.program).eval().requires_grad_(False)
    batch = net.encode(X)
    _check_eager(program, tuple(batch), tolerance, "the program")
    values = list(batch)
    for step in program.steps:
        values.append(step(values))
    for method, step in program.method_steps.items():
        _check_eager(step.module, (step.gather(values),), tolerance, method)


def _check_eager(module: nn.Module, inputs: tuple[Tensor, ...], tolerance: float, where: str) -> None:
    scripted, want = script(copy.deepcopy(module)), module(*inputs)
    for _ in range(3):  # the interpreter optimises after the first runs
        torch.testing.assert_close(
            scripted(*inputs),
            want,
            rtol=tolerance,
            atol=tolerance,
            equal_nan=True,
            msg=lambda text: f"{where}: TorchScript and eager torch differ. {text}",  # noqa: B023
        )


# Training


def _translated(fitted: Any, X: Any, untranslated: str) -> Translation | None:
    """The differentiable translation; None if a converter is registered without one."""
    entries = {entry.estimator: entry for entry in supported()}
    steps = [type(step.estimator) for step in steps_of(build_graph(fitted))]
    exact_only = [cls.__name__ for cls in steps if not entries[cls].differentiable]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a low R squared is an error below
        try:
            return translate(fitted, calibrate=X, untranslated=untranslated).soften()
        except UnsupportedEstimator as error:
            assert exact_only, f"every converter is registered as differentiable, and translate raises: {error}"
            return None


def _check_gradient(net: Translation, X: Any, y: Any) -> None:
    batch = net.encode(X)
    numbers = batch.numbers.clone().requires_grad_()
    scores = net.train()(numbers, batch.ids)
    trainable = {
        name: parameter
        for name, parameter in net.program.named_parameters()
        if parameter.requires_grad and parameter.numel()
    }
    assert scores.requires_grad or not (trainable or numbers.numel()), (
        "registered as differentiable, and there is no gradient; register it with differentiable=False."
    )
    if not scores.requires_grad:
        return
    finite = torch.isfinite(scores.detach())
    if y is None or net.head.loss == "unknown":
        value = scores[finite].sum()
    else:
        rows = finite.all(dim=1)
        value = loss_for(None, net.head)(scores[rows], net.head.encode_target(np.asarray(y))[rows], None)
    torch.autograd.backward(value)
    for name, parameter in trainable.items():
        assert parameter.grad is not None, f"no gradient reaches the parameter {name}."
        assert torch.isfinite(parameter.grad).all(), f"the gradient of the parameter {name} is not finite."
    if numbers.grad is not None:
        wrong = ~torch.isfinite(numbers.grad) & torch.isfinite(numbers.detach()) & finite.all(dim=1, keepdim=True)
        where = sorted({net.encoder.column_name(net.encoder.numbers[int(column)]) for column in wrong.nonzero()[:, 1]})
        assert not where, f"the gradient that reaches the columns {', '.join(where)} is not finite."
