"""The boosted residual: trees and a network over numbers and target statistics, averaged with a pipeline."""
