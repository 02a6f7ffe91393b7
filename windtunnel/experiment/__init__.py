"""Experiments as YAML: the config, its run, and tables in files."""
