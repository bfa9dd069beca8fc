"""Differential privacy of records and of collaborators: noise, what it protects, and what may be said of it.

No public names.
"""
