"""scikit-learn's sparse codes in a dictionary of atoms."""

from __future__ import annotations

from typing import Any

from sklearn import decomposition

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.decompositions.sparse_codes import MatchingPursuit, SoftThreshold
from windtunnel.translators.arrays import tensor
from windtunnel.translators.registry import translates


@translates(
    decomposition.DictionaryLearning,
    decomposition.MiniBatchDictionaryLearning,
    decomposition.SparseCoder,
    trainable="atoms",
    notes="transform_algorithm 'omp' and 'threshold'; 'lars', 'lasso_lars' and 'lasso_cd' are rejected",
)
def sparse_coder(fitted: Any) -> SoftThreshold | MatchingPursuit:
    """Codes by soft thresholds, or by orthogonal matching pursuit. Reads components_ (dictionary of SparseCoder)."""
    atoms = tensor(fitted.dictionary if isinstance(fitted, decomposition.SparseCoder) else fitted.components_)
    algorithm = fitted.transform_algorithm
    if algorithm == "threshold":
        alpha = getattr(fitted, "alpha", None) if fitted.transform_alpha is None else fitted.transform_alpha
        return SoftThreshold(atoms, 1.0 if alpha is None else alpha, fitted.positive_code, fitted.split_sign)
    if algorithm == "omp":
        if fitted.positive_code:
            raise UnsupportedEstimator(
                f"{type(fitted).__name__} with positive_code=True and transform_algorithm='omp' does not transform; "
                "set transform_algorithm='threshold', or positive_code=False."
            )
        count = fitted.transform_n_nonzero_coefs
        if count is None:
            count = min(max(atoms.shape[1] / 10, 1), atoms.shape[0])
        return MatchingPursuit(atoms, int(count), fitted.split_sign)
    raise UnsupportedEstimator(
        f"{type(fitted).__name__} with transform_algorithm={algorithm!r} follows a path of solutions to a tolerance, "
        "which has no exact translation; set transform_algorithm to 'omp' or 'threshold'."
    )
