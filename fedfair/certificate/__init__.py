"""The fairness certificate: what an evaluation proves about every sizeable group, signed, for people to read.

No public names.
"""
