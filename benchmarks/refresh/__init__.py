"""Models that are kept up to date on a stream of periods; run as ``python -m benchmarks.refresh``."""
