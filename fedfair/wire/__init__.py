"""Bytes on the wire: frames, chunks and their limits. Everything from a peer is validated here, once.

No public names.
"""
