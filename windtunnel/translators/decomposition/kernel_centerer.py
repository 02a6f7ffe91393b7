"""scikit-learn's KernelCenterer."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.preprocessing import KernelCenterer

from windtunnel.modules.kernels.kernel_center import KernelCenter
from windtunnel.translators.registry import translates


@translates(KernelCenterer, trainable="means of the kernel")
def kernel_centerer(fitted: KernelCenterer) -> KernelCenter:
    """K - K_fit_rows_ - mean of each row of K + K_fit_all_."""
    rows = torch.from_numpy(np.asarray(fitted.K_fit_rows_, dtype=np.float64).copy())
    return KernelCenter(rows, torch.tensor(float(fitted.K_fit_all_), dtype=torch.float64))
