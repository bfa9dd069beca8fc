"""News of a run: a class for each kind, with its level, its sentence and its effect on the status; processors.

No public names.
"""
