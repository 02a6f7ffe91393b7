"""Rows for training: in memory, from loaders, from Parquet files."""
