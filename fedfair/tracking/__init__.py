"""Trackers of runs: MLflow, TensorBoard or a file of JSON lines, beside the run and never in its way.

No public names.
"""
