"""The public functions and classes: translate, crossfit, sweep, cascade, serve, scikit-learn estimators and others."""
