"""The boosted residual: trees and a network over numbers and target statistics, averaged with the scores of a pipeline."""
