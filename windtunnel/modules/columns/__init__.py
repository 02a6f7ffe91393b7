"""Modules that compute columns from columns: scalers, bins, powers, splines."""
