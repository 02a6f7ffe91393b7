"""Hardened trees as the model files of LightGBM and XGBoost."""
