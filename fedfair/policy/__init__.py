"""A site's own rules: what it does with each request of an aggregator. Pure: the owner of the files calls them.

No public names.
"""
