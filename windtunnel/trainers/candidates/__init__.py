"""The candidates of ``fit``: their training, the selection of one, the part of its change that is installed."""
