"""Fine-tuning: recipes, losses, metrics, batches, the Lightning modules, and ``finetune`` that joins them.

Import from the files: ``recipe``, ``losses`` and ``data`` need torch alone, and Lightning takes seconds to import.
"""
