"""The facts of a report: what a translation is, how it runs, and what fine-tuning has changed."""

from __future__ import annotations

from windtunnel.compiler.native.engine import NativeEngine
from windtunnel.compiler.onnx_runtime import OnnxEngine
from windtunnel.errors import join_some
from windtunnel.modules.trees.soft.trees import SoftSplits
from windtunnel.program.records.history import History
from windtunnel.program.records.history_notes import advice, class_weights_text
from windtunnel.program.translated import TranslatedPipeline

Facts = list[tuple[str, str]]
"""Pairs of a name and a text; a name may occur several times."""
SHOWN_DRIFT = 12
"""The most columns whose drift is shown, the largest first."""
SHOWN_TERMS = 10
"""The most terms of the residual model that are shown, those with the largest mean contribution first."""


def report_facts(net: TranslatedPipeline) -> Facts:
    """Task, fidelity, steps on the host, how steps are run, fine-tuning and its candidates, the next calls."""
    facts = [("task", net.head.task_and_classes(8)), ("fidelity", _fidelity(net))]
    if net.history is not None:
        facts += _history_facts(net.history, net.head.unit)
    elif net.head.task != "transform" and not net.fixed:
        facts.append(("fine-tuned", "no: untrained, as fit was not called"))
    if net.records.hardened:
        facts.append(("hardened", str(net.hardening or "not measured: harden was given no rows")))
    facts += _run_facts(net)
    if net.softening is not None and net.softening_pending:
        text = f"joint training and net.soften() replace exact trees by soft ones (level {net.softening.level})"
        facts.append(("trainable", text))
    return [*facts, ("next", _next_step(net))]


def _run_facts(net: TranslatedPipeline) -> Facts:
    """Steps on the host, what ``compile`` has left out, and what runs the other steps."""
    facts = []
    for host in net.hosts:
        reason = host.reason.removeprefix(f"step {host.name!r}: ")
        before = f" Before it, on the host too: {join_some(host.steps_before)}." if host.steps_before else ""
        why = reason.removesuffix(".")
        text = f"{host.name}: {why}.{before} The gradient ends there: nothing before it is trained."
        facts.append(("on the host", text))
    if net.records.simplification is not None and net.records.simplification.saves():
        facts.append(("simplified", str(net.records.simplification)))
    onnx = "; ONNX Runtime walks them by its own operator" if isinstance(net.engine, OnnxEngine) else ""
    facts += [("trees", f"{choice}{onnx}") for choice in net.strategy_choices]
    if isinstance(engine := net.running_engine, NativeEngine):
        facts += [("runs in torch", f"{part.step.name}: {part.reason}") for part in engine.torch_parts()]
    return facts


def _next_step(net: TranslatedPipeline) -> str:
    """The calls that a user may make next."""
    if net.head.task == "transform":
        return "net.transform(X) gives the columns; net.save(path) keeps the translation"
    if net.history is None and not net.fixed:
        return "net.fit((X, y), (X_valid, y_valid)) fine-tunes; net.explain(X) explains scores"
    kept = "net.explain(X) explains scores; net.save(path) keeps the translation"
    kept += "" if net.hosts else ", net.export(path) writes one file"
    return kept if net.history is None else f"{advice(net.history).rstrip('.')}; {kept}"


def _fidelity(net: TranslatedPipeline) -> str:
    soft = any(isinstance(step.module, SoftSplits) for step in net.program.steps)
    fidelity = net.fidelity
    if not soft and not net.records.hardened and (fidelity is None or fidelity.r2 > 1 - 1e-6):
        exact = "every step computes what its source does"
        return f"exact before fine-tuning: {exact}" if net.records.tuned else f"exact: {exact}"
    if fidelity is None:
        return "soft trees, not measured: translate was given no calibrate rows"
    return (
        f"before training, R2 {fidelity.r2:.6f} against the source's own outputs on {fidelity.rows:,} calibration rows"
    )


def _history_facts(history: History, unit: str) -> Facts:
    """The result of fit or refresh with its candidates, the terms of the residual model, and the calibration."""
    candidates = [result.text(history.metric) for result in history.candidates]
    facts = [("fine-tuned", history.summary), *(("candidate", text) for text in candidates)]
    if history.refresh is not None:
        refresh = history.refresh
        replayed = f" and {refresh.old_rows:,} old rows" if refresh.old_rows else ""
        result = f"kept: {history.kept.name}" if history.changed else "nothing changed"
        facts = [
            ("refreshed", f"with {refresh.new_rows:,} new rows{replayed} in {history.seconds:.1f} s; {result}"),
            *(("before, after", change.text(history.metric)) for change in refresh.changes),
            ("drift of inputs", refresh.drift_text(SHOWN_DRIFT)),
            *(("attempt", text) for text in candidates),
        ]
    if history.class_weights is not None:
        weights = class_weights_text(history)
        facts.append(("class weights", f"{weights}: those of the source, in all numbers on {history.validated_on}"))
    facts += [("residual term", term.text(unit)) for term in history.terms[:SHOWN_TERMS]]
    return facts if history.calibration is None else [*facts, ("calibration", str(history.calibration))]
