"""The version of scikit-learn, where sources of different versions predict different values."""

import sklearn
from packaging.version import Version


def scikit_learn_before(version: str) -> bool:
    """Whether the installed scikit-learn, which is what the source predicts with, is older than a version."""
    return Version(sklearn.__version__) < Version(version)
