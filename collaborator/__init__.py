"""The collaborator process: carries frames between the aggregator and the local task, and decides nothing.

No public names.
"""
