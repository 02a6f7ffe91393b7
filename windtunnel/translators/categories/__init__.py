"""Converters of encoders of categories and texts."""

from windtunnel.translators.categories import (
    bin_encoder as bin_encoder,
    category_encoders as category_encoders,
    labels as labels,
    rare_categories as rare_categories,
    sklearn_encoders as sklearn_encoders,
    text as text,
    two_hot as two_hot,
)
