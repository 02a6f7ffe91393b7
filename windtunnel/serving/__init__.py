"""Scoring many small requests: batches that requests share, and a server that speaks HTTP."""
