"""Random pipelines on random awkward rows: the source's outputs, its rejections, or a rejection by name."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
from c_library import CLibrary
from export_cases import FORMATS, assert_as_net, columns_of, opened
from hypothesis import HealthCheck, assume, event, given, settings
from random_pipelines import ROWS, Drawn, pipelines

import windtunnel
from windtunnel.errors import BadInput, InvalidOption, UnfaithfulOption, UnsupportedEstimator
from windtunnel.export import c_file
from windtunnel.modules.trees.soft.trees import SoftTrees
from windtunnel.program.head import METHODS

EXAMPLES = int(os.environ.get("WINDTUNNEL_FUZZ", "60"))
C_SHARE = int(os.environ.get("WINDTUNNEL_FUZZ_C", "20"))
"""One of so many pipelines is exported as C too: a second each, most of it in the C compiler."""
FILE_SHARE = int(os.environ.get("WINDTUNNEL_FUZZ_FILE", "20"))
"""One of so many pipelines is exported in another format too, which takes seconds."""
TUNED_SHARE = int(os.environ.get("WINDTUNNEL_FUZZ_TUNED", "20"))
"""One of so many pipelines is fine-tuned and refreshed too, or put behind a small model: one to three seconds each."""
TOLERANCE = 1e-9


def quietly(call: Any, *given: Any) -> Any:
    """Call with the sources' warnings about awkward rows left out."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return call(*given)


def spoiled(frame: pd.DataFrame, seed: int, strict: bool) -> dict[str, pd.DataFrame]:
    """The rows as they are, and with one kind of trouble in each copy."""
    # Squares of 1e300 overflow in the source too, and distances to a point of 1e30 are all the same.
    huge = 1e300 if strict else 1e6
    random = np.random.default_rng(seed)
    kinds = {"plain": frame}
    numbers = [name for name in frame if name.startswith("n") and frame[name].dtype.kind == "f"]
    texts = [name for name in frame if name.startswith("t") and frame[name].dtype == object]
    for kind, value in (("missing", np.nan), ("infinite", np.inf), ("huge", huge), ("denormal", 5e-324)):
        if numbers:
            kinds[kind] = frame.copy()
            kinds[kind].loc[random.integers(len(frame)), random.choice(numbers)] = value
    if texts:
        kinds["unseen"] = frame.copy()
        kinds["unseen"].loc[random.integers(len(frame)), random.choice(texts)] = "never seen"
    return kinds


def output_of(source: Any, method: str, rows: Any) -> Any:
    given = quietly(getattr(source, method), rows)
    return np.asarray(given.toarray() if hasattr(given, "toarray") else given)


def varied(source: Any, rows: Any) -> bool:
    """Whether every column that reaches the last step is constant or varies by more than rounding.

    An estimator that divides by the spread of a column of rounding errors gives random numbers.
    """
    reached = output_of(source[:-1], "transform", rows).astype(float)
    spread, size = np.ptp(reached, axis=0), np.abs(reached).max(axis=0)
    # Nearest centroids divide by the deviation from a mean, which of a constant column is rounding too.
    constant = (spread == 0) & (type(source[-1]).__name__ != "NearestCentroid")
    return bool((constant | (spread > 1e-9 * size)).all() and (spread > 0).any())


def _terms(source: Any) -> Any:
    """How large the terms of the sums are that reach the last step, where they may cancel each other; else 0.

    If sampled rows are equal, Nystroem multiplies similarities by as much as 1e6, and sums to numbers near 1.
    """
    weights = getattr(source[-2], "normalization_", None)
    return 0.0 if weights is None else np.abs(weights).sum(axis=1).max()


def shaken(rows: pd.DataFrame, least: float = 0.0, times: int = 40) -> list[pd.DataFrame]:
    """Rows whose numbers differ from the given ones by a few of the last bits of their column, or of ``least``.

    Half of them differ by one bit at most, so that some numbers become equal: neighbours may weigh by 1 / distance.
    """
    random = np.random.default_rng(0)
    size = {name: np.nanmax(np.abs(rows[name][np.isfinite(rows[name])]), initial=0.0) for name in _floats(rows)}
    size = {name: 2.0**-53 * (max(greatest, least) if greatest < 1e100 else 1.0) for name, greatest in size.items()}
    return [
        rows.assign(**{n: rows[n] + random.integers(-bits, bits + 1, len(rows)) * unit for n, unit in size.items()})
        for bits in (1, 16)
        for _ in range(times // 2)
    ]


def _floats(rows: pd.DataFrame) -> list[str]:
    return [name for name in rows if rows[name].dtype.kind == "f"]


def shaken_answers(source: Any, method: str, rows: Any) -> list[Any]:
    """The outputs of the source when the last bits of the rows, or of what reaches its last step, are others."""
    outputs = [output_of(source, method, other) for other in shaken(rows)]
    if not hasattr(source, "steps") or source[-1] == "passthrough":
        return outputs
    reached = pd.DataFrame(output_of(source[:-1], "transform", rows)).astype(float).rename(columns=str)
    others = [other.to_numpy() for other in shaken(reached, _terms(source))] + shaken_distances(source, rows)
    return outputs + [output_of(source[-1], method, other) for other in others]


def shaken_distances(source: Any, rows: Any) -> list[Any]:
    """Distances from centres with other last bits in |x|^2 - 2 x.c + |c|^2, the square of which they are the root."""
    if not hasattr(source[-2], "cluster_centers_"):
        return []
    random = np.random.default_rng(0)
    distance = output_of(source[:-1], "transform", rows)
    unit = 2.0**-52 * np.square(output_of(source[:-2], "transform", rows).astype(float)).sum(axis=1).max()
    squares = [distance**2 + random.integers(-8, 9, distance.shape) * unit for _ in range(20)]
    return [np.sqrt(np.maximum(square, 0.0)) for square in squares]


def likelihood_error(source: Any, method: str, rows: Any) -> Any:
    """A few last bits of the log likelihoods of naive Bayes, of which probabilities are differences; else 0.

    A nearly constant column makes them as large as 1e20. Then the log of the sum of likelihoods loses its digits.
    """
    last, error = source[-1], 0.0
    for part in (last, *getattr(last, "estimators_", ())):
        if hasattr(part, "predict_joint_log_proba"):
            reached = output_of(source[:-1], "transform", rows)
            error = error + 2.0**-50 * np.abs(output_of(part, "predict_joint_log_proba", reached)).max(axis=1)
    if hasattr(last, "final_estimator_") and method != "transform":
        error = error * np.abs(last.final_estimator_.coef_).sum()
    return error


def slack(source: Any, method: str, rows: Any, want: Any) -> Any:
    """How far the source's own output moves when last bits do, as no translation can be nearer."""
    moved = [np.abs(one.astype(float) - want) for one in shaken_answers(source, method, rows)]
    bound = 10 * np.nan_to_num(np.max(moved, axis=0), nan=np.inf)
    if not hasattr(source, "steps"):  # a translation
        return bound
    return (bound.T + likelihood_error(source, method, rows)).T


def sure(source: Any, rows: Any, strict: bool) -> Any:
    """The rows whose label hangs on the last bit neither of two equal scores nor, unless ``strict``, of a number."""
    certain = np.full(len(rows), True)
    for method in ("decision_function", "predict_proba"):
        if hasattr(source, method):
            scores = output_of(source, method, rows)
            ordered = np.sort(np.stack([scores, -scores], axis=1) if scores.ndim == 1 else scores, axis=1)
            certain &= ordered[:, -1] - ordered[:, -2] > TOLERANCE if ordered.shape[1] > 1 else True
    if not strict:
        label = output_of(source, "predict", rows)
        for other in shaken_answers(source, "predict", rows):
            certain &= other == label
    return certain


def compare(
    source: Any, net: Any, rows: Any, strict: bool, methods: Sequence[str] = METHODS, tolerance: float = TOLERANCE
) -> None:
    for method in methods:
        if method == "apply" or not hasattr(source, method):
            continue
        assert hasattr(net, method), method
        try:
            want = output_of(source, method, rows)
        except ValueError:
            with pytest.raises(ValueError):  # ours, or that of a step on the host
                quietly(getattr(net, method), rows)
            continue
        got = output_of(net, method, rows)
        assert got.shape == want.shape, method
        if method == "predict" and want.dtype.kind not in "f":
            differ = got != want
            assert not (differ.any() and (differ & sure(source, rows, strict)).any()), (got[differ], want[differ])
        elif method != "predict_log_proba":  # the logarithm of what is compared already
            want = want.astype(float)
            near = np.isclose(got, want, tolerance, tolerance, equal_nan=True)
            if not strict and not near.all():
                near |= np.abs(got - want) <= slack(source, method, rows, want)
            assert near.all(), (method, got[~near], want[~near])


def check_tuned(drawn: Drawn, source: Any) -> None:
    """After ``fit`` and ``refresh``, C and the file compute what torch does; a cascade gives one of its two models."""
    train, valid = ((drawn.frame(rows, rows), drawn.target(rows, rows)) for rows in (400, 200))
    if drawn.seed // TUNED_SHARE % 3 == 0:
        check_cascade(source, train, valid)
        return
    try:
        net = quietly(lambda: windtunnel.translate(source, calibrate=train[0]).fit(train, valid, progress=False))
    except (UnsupportedEstimator, BadInput) as error:
        event(f"not tuned: {type(error).__name__}")
        return
    for change in (None, net.refresh):
        try:
            if change is not None:
                quietly(change, valid)
        except BadInput as error:
            assert "cannot be refreshed" in str(error), error
            return
        event(f"kept: {[candidate.name for candidate in net.history.candidates if candidate.kept]}")
        check_copies(drawn, source, net)


def check_copies(drawn: Drawn, source: Any, net: Any) -> None:
    with TemporaryDirectory() as folder:
        net.save(path := Path(folder) / "net.windtunnel")
        saved = windtunnel.load(path, host=source if net.hosts else None)
        library = exported(net, Path(folder))
    copies = {"saved": saved, "native": windtunnel.compile(net, backend="native")}
    # Soft trees round their input to float32, and the last bit of a cosine may decide to which number.
    soft = any(isinstance(module, SoftTrees) for module in net.program.modules())
    if library is not None:
        copies["C"] = library
    for name, copy in copies.items():
        copy_methods = c_file.C_METHODS if copy is library else METHODS
        for kind, rows in spoiled(drawn.frame(40, offset=1), drawn.seed, drawn.strict).items():
            try:
                compare(net, copy, rows, drawn.strict, copy_methods, tolerance=1e-5 if soft else TOLERANCE)
            except BaseException as error:
                error.add_note(f"{name} after fine-tuning, rows: {kind}")
                raise


def check_cascade(source: Any, train: Any, valid: Any) -> None:
    if not hasattr(source, "predict_proba"):
        return
    try:
        made = quietly(lambda: windtunnel.cascade(source, train, valid, accuracy_loss=0.05))
    except (UnsupportedEstimator, InvalidOption, ValueError) as error:  # a small model may get too few columns
        event(f"no cascade: {type(error).__name__}")
        return
    event(f"cascade, early: {made.threshold.early > 0}")
    small, full = output_of(made.small, "predict_proba", valid[0]), output_of(source, "predict_proba", valid[0])
    sure = small.max(axis=1) >= made.threshold.confidence
    wanted = np.where(sure[:, None], small, full)
    near = np.isclose(output_of(made, "predict_proba", valid[0]), wanted, TOLERANCE, TOLERANCE, equal_nan=True)
    assert near.all(), "cascade"


def exported(net: Any, folder: Path) -> CLibrary | None:
    """The pipeline as C; None if that has a limit."""
    try:
        library = CLibrary(net, folder)
    except UnfaithfulOption as error:
        event("not in C: " + "...".join(str(error).split("'")[::2]))
        return None
    event("in C")
    return library


def check_file(drawn: Drawn, net: Any) -> None:
    """A file gives what the net gives, and rejects what it rejects."""
    format = FORMATS[drawn.seed // FILE_SHARE % len(FORMATS)]
    with TemporaryDirectory() as folder:
        try:
            model = quietly(opened, net, Path(folder), format)
        except UnfaithfulOption as error:
            event(f"not {format}: " + "...".join(str(error).split("'")[::2]))
            return
        event(f"{format}")
        for kind, rows in spoiled(drawn.frame(40, offset=1), drawn.seed, drawn.strict).items():
            try:
                quietly(net.scores, rows)
            except ValueError:
                with pytest.raises(ValueError):
                    quietly(model.scores, columns_of(net, rows))
                continue
            try:
                quietly(assert_as_net, model, net, rows, TOLERANCE)
            except BaseException as error:
                error.add_note(f"{format}, rows: {kind}")
                raise


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="WINDTUNNEL_FUZZ" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    print_blob=True,
)
@given(pipelines())
def test_random_pipelines(drawn: Drawn) -> None:
    try:
        source = quietly(drawn.pipeline().fit, drawn.frame(ROWS), drawn.target())
    except (ValueError, TypeError, IndexError, np.linalg.LinAlgError):  # IndexError: discriminants of constant columns
        assume(False)
    assume(drawn.strict or varied(source, drawn.frame(ROWS)))
    try:
        net = quietly(windtunnel.compile, source)
    except UnsupportedEstimator as error:
        assert any(
            word in str(error) for word in ("set ", "fit", "leave", "use ", "give ", "take ", "drop ", "Register")
        ), error
        return
    if drawn.seed % TUNED_SHARE == 0 and drawn.final[0] != "other":
        check_tuned(drawn, source)
    if drawn.seed % FILE_SHARE == 1:
        check_file(drawn, net)
    with TemporaryDirectory() as folder:
        library = exported(net, Path(folder)) if drawn.seed % C_SHARE == 0 else None
        for kind, rows in spoiled(drawn.frame(40, offset=1), drawn.seed, drawn.strict).items():
            try:
                compare(source, net, rows, drawn.strict)
                if library is not None:
                    compare(source, library, rows, drawn.strict, c_file.C_METHODS)
            except BaseException as error:
                error.add_note(f"rows: {kind}")
                raise
