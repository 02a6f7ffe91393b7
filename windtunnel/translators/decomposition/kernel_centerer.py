"""scikit-learn's KernelCenterer."""

from __future__ import annotations

from sklearn.preprocessing import KernelCenterer

from windtunnel.modules.kernels.kernel_center import KernelCenter
from windtunnel.translators.arrays import tensor
from windtunnel.translators.registry import translates


@translates(KernelCenterer, trainable="means of the kernel")
def kernel_centerer(fitted: KernelCenterer) -> KernelCenter:
    """K - K_fit_rows_ - mean of each row of K + K_fit_all_."""
    return KernelCenter(tensor(fitted.K_fit_rows_), tensor(fitted.K_fit_all_))
