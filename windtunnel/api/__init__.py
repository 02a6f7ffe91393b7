"""The public face: translate, compile, Translation, crossfit and the scikit-learn estimators."""
