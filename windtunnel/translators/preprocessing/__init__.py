"""Converters of scalers, imputers, bins, powers and selectors."""

from windtunnel.translators.preprocessing import (
    chained_imputer as chained_imputer,
    discretizers as discretizers,
    functions as functions,
    imputers as imputers,
    missing_indicator as missing_indicator,
    nearest_imputer as nearest_imputer,
    polynomial as polynomial,
    power as power,
    quantile as quantile,
    scalers as scalers,
    selection as selection,
    spline as spline,
)
