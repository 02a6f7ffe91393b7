"""The error for estimators that are not fitted; not in ``windtunnel.errors``, which needs no scikit-learn."""

from sklearn.exceptions import NotFittedError

from windtunnel.errors import WindTunnelError


class NotFitted(WindTunnelError, NotFittedError):
    """An estimator that has to be fitted before it can be translated."""
