"""Keeps files that outlive a process: whole files, tables, long vectors, rotated logs and locks.

No public names.
"""
