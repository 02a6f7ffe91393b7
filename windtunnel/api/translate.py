"""``translate``: a fitted pipeline in, a differentiable ``Translation`` out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.api.sources import remember_source
from windtunnel.api.translation import Translation
from windtunnel.assemble import assemble, translation_in
from windtunnel.compiler.passes import look_up_sums
from windtunnel.compiler.strategies import use_fastest_forms
from windtunnel.encode import Rows
from windtunnel.errors import BadInput, UnsupportedEstimator
from windtunnel.pipeline.constraints import warn_of_constraints
from windtunnel.program.records.fidelity import CalibrationRows, warn_if_low
from windtunnel.program.records.training_profile import TrainingProfile
from windtunnel.program.softening import check_level, may_soften, soften
from windtunnel.program.trainable_tensors import outside_inference_mode
from windtunnel.program.translate_options import SofteningPlan, check_calibration_rows, check_options


@outside_inference_mode
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

    Trees stay exact, and no parameter of a pipeline with trees is trainable, until ``Translation.soften`` makes them
    soft. Joint training calls it; a custom training loop has to. The default ``fit`` needs no soft trees.

    Parameters
    ----------
    pipeline : fitted scikit-learn estimator or Pipeline, or model of LightGBM, XGBoost or CatBoost
        Left as it is.
    level : str or {step name: str}
        The trainable weights of soft trees: "L0" none, "L1" leaf values, "L2" also thresholds, "L3" also the weights of
        the first layer, "L4" also those of the second. With one string, trees of
        thousands of leaves stay hard, with a warning. With a mapping all trees become soft; steps that it does not name
        get L4.
    start : "warm" or "cold"
        "warm" copies the weights of the fitted pipeline. "cold" draws random trees and tables of the same architecture,
        soft at once.
    temperature : "auto" or float
        "auto": thresholds move to the middle of their gap, and every node gets its own temperature. The trees are as
        soft as they can be with 99.995 % of the variance of the raw scores kept on the ``calibrate`` rows; deep
        trees, which keep less at any temperature, get the sharpest ones. Without
        rows, temperatures come from the values of tables, the ranges that the model stores and the distances between
        its thresholds. A number is the temperature of every node and leaf, in the unit of the input; the paper takes 1.
    calibrate : rows, optional
        A few thousand raw rows, such as a sample of the training rows. The report has R squared on these rows. With
        soft trees it is lower on new rows, the more so the fewer calibration rows there are. The translation keeps up
        to 100,000 of them, encoded, until its trees are soft; a file never holds them.
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
    BadInput
        ``calibrate`` has rows that the pipeline does not take.
    """
    check_options(level, start, temperature, untranslated)
    check_calibration_rows(calibrate)
    if isinstance(pipeline, Translation):
        raise UnsupportedEstimator("this is a translation already: fit, compile or export it as it is")
    if translation_in(pipeline) is not None:
        raise UnsupportedEstimator(
            f"{type(pipeline).__name__} holds a translation already: fit, compile or export its translation_ as it is"
        )
    net = Translation.of(assemble(pipeline, untranslated, calibrate), untranslated)
    warn_of_constraints(pipeline)
    look_up_sums(net)
    check_level(net.program, level)
    softens = may_soften(net.program)
    use_fastest_forms(net)
    net.mark_initial_weights()
    calibration = None
    if calibrate is not None:
        rows, encoded = net.encoder.source_rows(calibrate), net.encode(calibrate)
        try:
            calibration = CalibrationRows.of(encoded, net.head.methods, pipeline, rows)
        except (ValueError, TypeError, KeyError) as error:
            raise BadInput(
                f"the source pipeline rejects the rows of calibrate=: {str(error).rstrip('.')}. Give rows that it "
                "predicts."
            ) from error
        fidelity = calibration.fidelity(net)
        net.record(fidelity=fidelity)
        net.keep_profile(TrainingProfile.of(net.encoder, net.hosts, encoded))
        warn_if_low(fidelity)
        calibration = calibration.sample()
    trainable = tuple(name for name, parameter in net.program.named_parameters() if parameter.requires_grad)
    plan = SofteningPlan(
        dict(level) if isinstance(level, Mapping) else level,
        "auto" if temperature == "auto" else float(temperature),
        trainable,
    )
    net.defer_softening(plan, calibration)
    if start == "cold" or not softens:
        soften(net, start=start)
    return remember_source(net.eval(), pipeline)
