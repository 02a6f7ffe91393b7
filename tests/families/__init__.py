"""The rows of the case table: folders as in ``windtunnel/translators``, a file per family of estimators."""
