"""Outputs of several estimators combined into one."""
