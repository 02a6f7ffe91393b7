"""The boosted residual: trees over target statistics of interactions, which start from the scores of a pipeline."""
