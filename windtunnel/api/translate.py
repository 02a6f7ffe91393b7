"""``translate``: a fitted pipeline in, a differentiable ``Translation`` out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import torch

from windtunnel.api.translation import Translation
from windtunnel.assemble import Assembly
from windtunnel.compiler.backends import BACKENDS, engine, place, tree_runner
from windtunnel.compiler.passes import look_up_sums, simplify
from windtunnel.compiler.strategies import STRATEGIES, choose, fastest
from windtunnel.encode import Rows, count_rows
from windtunnel.errors import BadInput, InvalidOption
from windtunnel.modules.trees import HardTrees
from windtunnel.modules.trees.soft.trees import LEVELS
from windtunnel.program.fidelity import OUTPUT_METHODS, Fidelity
from windtunnel.program.softening import redraw_tables, soften_steps

WANTED = 0.999
"""R squared of the answers against the source's, below which ``translate`` warns."""


def translate(
    pipeline: Any,
    *,
    level: str | Mapping[str, str] = "L4",
    start: str = "warm",
    temperature: float | str = "auto",
    calibrate: Rows | None = None,
    untranslated: str = "cache",
) -> Translation:
    """Translate a fitted pipeline into a differentiable module that starts from what the pipeline knows.

    Parameters
    ----------
    pipeline : fitted scikit-learn estimator or Pipeline, LightGBM model or Booster
        Left as it is.
    level : str or {step name: str}
        What of the trees is trainable: "L0" nothing, "L1" leaf values, "L2" also thresholds, "L3" also the weights of
        the first layer, "L4" also those of the second. Trees of thousands of leaves stay hard, with a warning, unless
        a mapping names them.
    start : "warm" or "cold"
        Copied from the fitted pipeline, or the same architecture with random trees and tables.
    temperature : "auto" or float
        "auto": thresholds move to the middle of their gap, every node gets a temperature of its own, and the softest
        start is taken that keeps 99.995 % of the variance of the raw scores on the ``calibrate`` rows (without rows:
        from the values of tables, the ranges that the model stores and the distances between its thresholds). A
        number is one temperature for every node and leaf in the unit of the input, the paper's being 1.
    calibrate : rows, optional
        A few thousand raw rows, such as a sample of the training rows. The report's R squared is that on these rows;
        new ones keep less of the variance, the less the fewer these are.
    untranslated : "cache", "stream" or "error"
        What to do with a step that has no translation: keep it on the host and compute its answers once, or batch by
        batch; or raise.

    Returns
    -------
    Translation

    Raises
    ------
    UnsupportedEstimator
        The final step, or with ``untranslated="error"`` any step, has no translation.
    NotFitted
        A step is not fitted.
    InvalidOption
        An argument is none of the accepted values.
    """
    check_options(level, start, temperature, untranslated)
    _check_rows(calibrate)
    assembly = Assembly(pipeline, untranslated, calibrate)
    net = _translation(assembly)
    look_up_sums(net)
    batch = net.encode(calibrate, training=False) if calibrate is not None else None
    exact = soften_steps(net, level, start, temperature, batch)
    soft = any(step.module is not exact[position] for position, step in enumerate(net.program.steps))
    if soft and net.head.link == "probabilities" and not isinstance(net.head.classes, list):
        net.replace_head(replace(net.head, link="shares"))  # what leaks out of soft leaves would be below 0 or above 1
    if start == "warm":
        steps = enumerate(net.program.steps)
        replaced = {position: exact[position] for position, step in steps if step.module is not exact[position]}
        net.set_exact_modules({at: fastest(m) if isinstance(m, HardTrees) else m for at, m in replaced.items()})
    net.configure(strategy_choices=choose(net.program, "auto"))  # of trees that are too large to be soft
    if start == "cold":
        redraw_tables(net.program)
    if batch is not None:
        method = next(name for name in OUTPUT_METHODS if name in net.head.methods)
        source_outputs = getattr(pipeline, method)(net.encoder.source_rows(calibrate))
        fidelity = Fidelity.between(getattr(net, method)(batch), source_outputs)
        net.record(fidelity=fidelity)
        if start == "warm" and temperature == "auto" and fidelity.r2 < WANTED:
            warnings.warn(
                f"the translation keeps R2 {fidelity.r2:.4f} of the source's outputs on the "
                f"{len(batch.ids):,} calibration rows; wanted is {WANTED}. Give more calibration rows, or "
                "take windtunnel.compile for exact answers without training.",
                UserWarning,
                stacklevel=2,
            )
    net.mark_initial_weights()
    return net.eval()  # with the modules that were put in


def compile(
    pipeline: Any,
    *,
    backend: str = "torch",
    strategy: str = "auto",
    device: str | torch.device = "cpu",
    batch_size: int | None = None,
    dtype: torch.dtype | str | None = None,
    calibrate: Rows | None = None,
    tune: bool = False,
) -> Translation:
    """Exact inference for a fitted pipeline: the source's own answers, with nothing to train but a residual model beside it.

    What the answers do not depend on is not computed, and raw columns that only that took are not read
    (``windtunnel.compiler.passes``); so a residual model has fewer columns to learn from than one beside a translation.

    Parameters
    ----------
    pipeline : fitted scikit-learn estimator or Pipeline, or model of LightGBM, XGBoost or CatBoost
        Left as it is.
    backend : "torch", "torchscript", "exported", "aoti", "onnx" or "cudagraphs"
        What runs the program: eager torch, its scripted form, ``torch.export``'s graph, native code of it (half a
        minute to compile), ONNX Runtime, or on a GPU that graph with few rows as CUDA graphs.
    strategy : str
        "auto", "gemm", "tree_traversal", "perfect_tree_traversal", "ranked_traversal", "bitvectors" or "oblivious". How
        trees are run; see ``windtunnel.compiler.strategies``.
    device : str or torch.device
        Where the program runs.
    batch_size : int, optional
        How many rows go through the program at once; what "auto" makes fast. By default one, few and many.
    dtype : torch.float64, torch.float32 or their names, optional
        What is computed in. By default float64, as the sources do: rows decide in trees and equal thresholds as they
        do there. In float32, which is faster, scores are within 1e-5, and rows that are float32 numbers decide alike.
    calibrate : rows, optional
        A few raw rows; needed only where a step that stays on the host does not tell how many columns it gives.
    tune : bool
        Whether "auto" measures on this machine the strategies that it expects to be fastest, as the backend runs them;
        native code takes a minute for each. ONNX Runtime walks trees by an operator of its own, whatever the strategy.

    Returns
    -------
    Translation
        With the methods that the source has, of the same shapes and label types.

    Raises
    ------
    UnsupportedEstimator
        The final step has no translation.
    NotFitted
        A step is not fitted.
    InvalidOption
        An argument is none of the accepted values, or the backend cannot run a step.
    """
    precision = _check_compile(backend, strategy, batch_size, dtype)
    _check_rows(calibrate)
    net = exact(pipeline, precision, calibrate)
    simplify(net)
    net.to(place(device))
    measure = tree_runner(backend) if tune and backend != "onnx" else None
    choices = choose(net.program, strategy, rows=batch_size, measure=measure)
    net.configure(engine=engine(net, backend), batch_size=batch_size, strategy_choices=choices)
    return net


def exact(pipeline: Any, dtype: torch.dtype, calibrate: Rows | None = None) -> Translation:
    """The source's own answers from a program that still reads all of its columns, as a residual model beside it wants to."""
    return _translation(Assembly(pipeline, sample=calibrate, dtype=dtype, exact=True)).requires_grad_(False)


DTYPES = {"float64": torch.float64, "float32": torch.float32}


def _check_compile(backend: str, strategy: str, batch_size: int | None, dtype: Any) -> torch.dtype:
    wrong = []
    if backend not in BACKENDS:
        wrong.append(f"backend={backend!r}; accepted are {', '.join(map(repr, BACKENDS))}")
    if strategy not in STRATEGIES:
        wrong.append(f"strategy={strategy!r}; accepted are {', '.join(map(repr, STRATEGIES))}")
    if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
        wrong.append(f"batch_size={batch_size!r}; accepted are whole numbers from 1 up and None")
    name = "float64" if dtype is None else str(np.dtype(dtype) if isinstance(dtype, type) else dtype)
    if (name := name.removeprefix("torch.")) not in DTYPES:
        wrong.append(f"dtype={dtype!r}; accepted are torch.float64, torch.float32 and None")
    if wrong:
        raise InvalidOption("compile got " + "; ".join(wrong) + ".")
    return DTYPES[name]


def _translation(assembly: Assembly) -> Translation:
    return Translation(
        assembly.program, assembly.encoder, assembly.head, assembly.origins, assembly.hosts, assembly.untranslated
    )


def check_options(level: Any, start: str, temperature: float | str, untranslated: str) -> None:
    """Raise for values of the options of `translate` that are not accepted, all of them at once."""
    wrong = []
    given = level.values() if isinstance(level, Mapping) else [level]
    wrong += [f"level={one!r}; accepted are {', '.join(LEVELS)}" for one in given if one not in LEVELS]
    if start not in ("warm", "cold"):
        wrong.append(f"start={start!r}; accepted are 'warm' and 'cold'")
    number = isinstance(temperature, Real) and not isinstance(temperature, bool)
    if temperature != "auto" and not (number and 0 < float(temperature) < math.inf):
        wrong.append(f"temperature={temperature!r}; accepted are 'auto' and finite numbers above 0")
    if untranslated not in ("cache", "stream", "error"):
        wrong.append(f"untranslated={untranslated!r}; accepted are 'cache', 'stream' and 'error'")
    if wrong:
        raise InvalidOption("translate got " + "; ".join(wrong) + ".")


def _check_rows(calibrate: Rows | None) -> None:
    if calibrate is not None and count_rows(calibrate) == 0:
        raise BadInput(
            "calibrate= has 0 rows; give a few thousand rows, such as a sample of the training rows, or None."
        )
