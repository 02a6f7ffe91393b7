"""``windtunnel demo``: fit, translate, fine-tune and export a pipeline on generated data."""

from windtunnel.demo.job import run

__all__ = ["run"]
