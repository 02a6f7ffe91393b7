"""The boosted residual: trees over numbers and target statistics, averaged with the scores of a pipeline."""
