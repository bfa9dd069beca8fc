"""The statistics that a run can sum over sites: a room for each, and the table that lists them.

No public names.
"""
