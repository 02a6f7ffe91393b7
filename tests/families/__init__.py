"""The rows of the case table, a file per family of estimators."""
