"""Standardisation: the moments of every numeric column, from which the features are scaled."""
