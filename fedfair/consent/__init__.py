"""Consent of a site by its own named people: who may decide, what each has signed, and what that comes to.

Pure but for the files it reads and writes; no torch, no network, no clock of its own.

No public names.
"""
