"""Inference times of compiled pipelines, their sources and other engines."""
