"""The egress record: what left an institution, entry by entry, chained and signed so that changes are noticed.

No public names.
"""
