"""The folder that a federation lives in: made from templates, carried to other hosts as an archive.

No public names.
"""
