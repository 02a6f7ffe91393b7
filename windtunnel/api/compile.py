"""``compile``: exact and fast inference for a fitted pipeline."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch

from windtunnel.api.sources import remember_source
from windtunnel.api.translation import Translation
from windtunnel.assemble import assemble, translation_in
from windtunnel.compiler.backends import BACKENDS, engine, native_engine, tree_runner, usable_device
from windtunnel.compiler.passes import simplify
from windtunnel.compiler.strategies import STRATEGIES, convert_trees
from windtunnel.encode import Rows
from windtunnel.errors import InvalidOption, is_whole_number
from windtunnel.program.trainable_tensors import outside_inference_mode
from windtunnel.program.translate_options import check_calibration_rows

DTYPES = {"float64": torch.float64, "float32": torch.float32}


@outside_inference_mode
def compile(
    pipeline: Any,
    *,
    backend: str = "auto",
    strategy: str = "auto",
    device: str | torch.device = "cpu",
    batch_size: int | None = None,
    dtype: torch.dtype | str | None = None,
    calibrate: Rows | None = None,
    tune: bool = False,
) -> Translation:
    """Make a fitted pipeline, or a translation, fast. Nothing is trainable but a residual model that ``fit`` adds.

    For a pipeline the outputs are exact. For a translation the scores are equal to its own but for the last digits of
    its type. Its exact trees stay exact, and a residual model is computed as it was trained. Trees that ``fit`` or
    ``soften`` made soft stay soft, which takes many times as long: ``net.harden()`` first makes them hard.

    The program computes only what the outputs depend on, and reads only the raw columns that this takes
    (``windtunnel.compiler.passes``). A residual model therefore has fewer columns to learn from than after
    ``translate``.

    Parameters
    ----------
    pipeline : fitted scikit-learn estimator or Pipeline, model of LightGBM, XGBoost or CatBoost, or Translation
        Left as it is. A translation must not have been compiled for another backend than "native" or "torch". A fitted
        ``WindTunnelClassifier`` or ``WindTunnelRegressor`` stands for its ``translation_``.
    backend : "auto", "native", "torch", "torchscript", "exported", "aoti", "onnx" or "cudagraphs"
        What runs the program: our C library, which the system's C compiler builds at first use ("native"; steps
        without a native form run in torch), eager torch, its scripted form, ``torch.export``'s graph, native code of
        that (half a minute to compile), ONNX Runtime, or on a GPU ``torch.export``'s graph recorded as CUDA graphs for
        small batches. "auto" is "native" on the CPU; it is "torch" with a ``strategy``, with ``tune``, and where the
        library cannot be built, which the logger "windtunnel" explains once.
    strategy : str
        "auto", "gemm", "tree_traversal", "perfect_tree_traversal", "ranked_traversal", "bitvectors" or "oblivious". How
        trees are run; see ``windtunnel.compiler.strategies``.
    device : str or torch.device
        Where the program runs.
    batch_size : int, optional
        How many rows go through the program at once. "auto" chooses the fastest strategy for this number, by default
        for one, few and many rows.
    dtype : torch.float64, torch.float32 or their names, optional
        The type to compute in. The default, float64, is that of the sources: trees decide every row as they do, also
        where it equals a threshold. In float32, scores are within 1e-5, but trees may decide a row next to a
        threshold otherwise, and "auto" takes torch. A translation keeps its type.
    calibrate : rows, optional
        A few raw rows; needed only if a step on the host of a pipeline does not say how many columns it returns.
    tune : bool
        Whether "auto" measures on this machine, with this backend, the strategies that it expects to be fastest.
        AOTInductor takes a minute for each. ONNX Runtime has its own form of trees, whatever the strategy; so has the
        native library, for which ``strategy`` and ``tune`` are rejected.

    Returns
    -------
    Translation
        With the methods of the source, of the same shapes and label types.

    Raises
    ------
    UnsupportedEstimator
        The final step has no translation.
    NotFitted
        A step is not fitted.
    InvalidOption
        An argument is none of the accepted values, or the backend is not installed or cannot run on the device.
    UnfaithfulOption
        The backend cannot run a step, or gives other outputs.
    """
    precision = _check_compile(backend, strategy, batch_size, dtype, tune=tune)
    batch_size = None if batch_size is None else int(batch_size)
    check_calibration_rows(calibrate)
    translation = translation_in(pipeline)
    if isinstance(translation, Translation):
        net = _frozen_copy(translation, precision if dtype is not None else None)
    else:
        net = exact_translation(pipeline, precision, calibrate)
    simplify(net)
    net.to(usable_device(device))
    native = native_engine(net) if backend == "auto" and strategy == "auto" and not tune else None
    if native is not None:
        net.configure(engine=native, batch_size=batch_size)
        return net
    backend = "torch" if backend == "auto" else backend
    measure = tree_runner(backend) if tune and backend != "onnx" else None
    # The native library has its own forms of trees.
    choices = () if backend == "native" else convert_trees(net.program, strategy, rows=batch_size, measure=measure)
    net.configure(engine=engine(net, backend), batch_size=batch_size, strategy_choices=choices)
    return net


def exact_translation(pipeline: Any, dtype: torch.dtype, calibrate: Rows | None = None) -> Translation:
    """Translate for the exact outputs of the source; the program reads all raw columns, for a residual model."""
    net = Translation.of(assemble(pipeline, sample=calibrate, dtype=dtype, exact=True)).requires_grad_(False)
    return remember_source(net, pipeline)


def _frozen_copy(net: Translation, dtype: torch.dtype | None) -> Translation:
    """A copy whose trees stay as they are; ``InvalidOption`` for another type, or a backend that is fixed."""
    if net.fixed:
        raise InvalidOption(
            "this translation runs on a backend that is fixed. Compile the translation or the pipeline that it was "
            "made of."
        )
    if dtype not in (None, getattr(torch, net.encoder.dtype)):
        raise InvalidOption(
            f"compile got dtype={dtype} for a translation that computes in {net.encoder.dtype}; leave dtype out."
        )
    copy = deepcopy(net).requires_grad_(False).eval()
    copy.drop_engine()
    copy.finish_softening()
    return copy


def _check_compile(backend: str, strategy: str, batch_size: int | None, dtype: Any, *, tune: bool) -> torch.dtype:
    wrong = []
    if backend not in BACKENDS:
        wrong.append(f"backend={backend!r}; accepted are {', '.join(map(repr, BACKENDS))}")
    if strategy not in STRATEGIES:
        wrong.append(f"strategy={strategy!r}; accepted are {', '.join(map(repr, STRATEGIES))}")
    if backend == "native" and (strategy != "auto" or tune):
        given = f"strategy={strategy!r} and tune={tune} for backend='native'"
        wrong.append(f"{given}, which has its own forms of trees; leave both out")
    if batch_size is not None and not is_whole_number(batch_size, 1):
        wrong.append(f"batch_size={batch_size!r}; accepted are whole numbers from 1 up and None")
    name = "float64" if dtype is None else str(np.dtype(dtype) if isinstance(dtype, type) else dtype)
    if (name := name.removeprefix("torch.")) not in DTYPES:
        wrong.append(f"dtype={dtype!r}; accepted are torch.float64, torch.float32 and None")
    if wrong:
        raise InvalidOption("compile got " + "; ".join(wrong) + ".")
    return DTYPES[name]
