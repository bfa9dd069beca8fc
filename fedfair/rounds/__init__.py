"""The rounds of a federation as state machines: events in, effects out; no socket, no clock, no thread.

No public names.
"""
