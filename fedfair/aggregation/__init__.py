"""Describes what is summed over sites: the shape of every statistic, and what its total means. No torch.

No public names.
"""
