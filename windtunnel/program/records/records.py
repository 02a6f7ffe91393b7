"""The results of operations on a translation."""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.program.records.fidelity import Fidelity
from windtunnel.program.records.hardening_result import HardeningResult
from windtunnel.program.records.history import History
from windtunnel.program.records.simplification import Simplification


@dataclass(frozen=True)
class Records:
    """The results of operations on a translation, for its report.

    Attributes
    ----------
    fidelity : Fidelity or None
        R squared against the source pipeline on the calibration rows.
    simplification : Simplification or None
        What the passes of ``windtunnel.compile`` have left out.
    hardened : bool
        Whether ``harden`` made this translation.
    hardening : HardeningResult or None
        The change that ``harden`` measured; None where it was given no rows, or nothing was hardened.
    history : History or None
        What the last ``fit`` or ``refresh`` did.
    tuned : bool
        Whether any ``fit`` or ``refresh`` has changed the predictions.
    class_weights : tuple of str
        The parameters of the source that made some classes count more: class weights, and samplers.
    """

    fidelity: Fidelity | None = None
    simplification: Simplification | None = None
    hardened: bool = False
    hardening: HardeningResult | None = None
    history: History | None = None
    tuned: bool = False
    class_weight_parameters: tuple[str, ...] = ()
