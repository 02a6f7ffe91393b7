"""Tests on validation rows of whether a change is significantly better."""
