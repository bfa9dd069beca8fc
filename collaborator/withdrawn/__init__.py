"""Persons who withdraw at this site: what is recorded, in which runs they counted, and what the lead is told.

No public names.
"""
