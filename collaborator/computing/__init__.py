"""The computing part of a site as a process of its own: own code, readers of data and torch, and nothing else.

`apart.py` is the side of the service, which has keys, ledger and network; `serving.py` is the side of the worker.

No public names.
"""
