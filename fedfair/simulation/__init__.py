"""A whole federation in one process, and the algorithms that the deployed ones are compared with.

No public names.
"""
