"""Cascades, caches and top-K filters on pipelines like those of Willump."""
