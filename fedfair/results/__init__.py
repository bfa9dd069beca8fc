"""The result of a run: one model of `fedfair/result/1`, which is built, written, read and published.

No public names.
"""
