"""The DAG of a fitted pipeline, and the steps that stay on the host."""
