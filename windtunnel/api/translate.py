"""``translate``: a fitted pipeline in, a differentiable ``Translation`` out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windtunnel.api.translation import Translation
from windtunnel.assemble import Assembly
from windtunnel.compiler.passes import look_up_sums
from windtunnel.compiler.strategies import choose, fastest
from windtunnel.encode import Rows
from windtunnel.modules.trees import HardTrees
from windtunnel.program.fidelity import OUTPUT_METHODS, Fidelity
from windtunnel.program.softening import redraw_tables, soften_steps
from windtunnel.program.translate_options import check_calibration_rows, check_options

LEAST_R2 = 0.999
"""R squared against the source's outputs, below which ``translate`` warns."""


def translate(
    pipeline: Any,
    *,
    level: str | Mapping[str, str] = "L4",
    start: str = "warm",
    temperature: float | str = "auto",
    calibrate: Rows | None = None,
    untranslated: str = "cache",
) -> Translation:
    """Translate a fitted pipeline into a differentiable module whose initial weights are those of the pipeline.

    Parameters
    ----------
    pipeline : fitted scikit-learn estimator or Pipeline, or model of LightGBM, XGBoost or CatBoost
        Left as it is.
    level : str or {step name: str}
        The trainable weights of trees: "L0" none, "L1" leaf values, "L2" also thresholds, "L3" also the weights of
        the first layer, "L4" also those of the second. Trees of thousands of leaves stay hard, with a warning, unless
        a mapping names them.
    start : "warm" or "cold"
        Copied from the fitted pipeline, or the same architecture with random trees and tables.
    temperature : "auto" or float
        "auto": thresholds move to the middle of their gap, and every node gets its own temperature. The trees are as
        soft as they can be with 99.995 % of the variance of the raw scores kept on the ``calibrate`` rows. Without
        rows, temperatures come from the values of tables, the ranges that the model stores and the distances between
        its thresholds. A number is the temperature of every node and leaf, in the unit of the input; the paper takes 1.
    calibrate : rows, optional
        A few thousand raw rows, such as a sample of the training rows. The report has R squared on these rows. It is
        lower on new rows, the more so the fewer calibration rows there are.
    untranslated : "cache", "stream" or "error"
        For a step that has no translation: keep it on the host and compute its output once, or batch by batch; or
        raise.

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
    check_calibration_rows(calibrate)
    net = Translation.of(Assembly(pipeline, untranslated, calibrate))
    look_up_sums(net)
    batch = None if calibrate is None else net.encode(calibrate)
    exact = soften_steps(net, level, start, temperature, batch)
    if exact and net.head.link == "probabilities" and not isinstance(net.head.classes, list):
        net.replace_head(replace(net.head, link="shares"))  # soft leaves leak: outputs may be below 0 or above 1
    if start == "warm":
        net.set_exact_modules({at: fastest(old) if isinstance(old, HardTrees) else old for at, old in exact.items()})
    net.configure(strategy_choices=choose(net.program, "auto"))  # of trees that are too large to be soft
    if start == "cold":
        redraw_tables(net.program)
    if batch is not None:
        method = next(name for name in OUTPUT_METHODS if name in net.head.methods)
        source_outputs = getattr(pipeline, method)(net.encoder.source_rows(calibrate))
        fidelity = Fidelity.between(getattr(net, method)(batch), source_outputs)
        net.record(fidelity=fidelity)
        if start == "warm" and temperature == "auto" and fidelity.r2 < LEAST_R2:
            warnings.warn(
                f"the translation keeps R2 {fidelity.r2:.4f} of the source's outputs on the "
                f"{fidelity.rows:,} calibration rows, which should be {LEAST_R2} or more. Give more calibration rows, "
                "or take windtunnel.compile for exact outputs without training.",
                UserWarning,
                stacklevel=2,
            )
    net.mark_initial_weights()
    return net.eval()  # with the soft modules
