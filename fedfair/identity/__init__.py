"""Identifies participants: certificate authority, requests, the roster of pinned keys, mutual TLS settings.

No public names.
"""
