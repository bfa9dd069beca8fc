"""Persons who withdraw: their records stop counting at their site, and what they counted in is known and rerun.

No public names.
"""
