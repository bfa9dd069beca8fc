"""Advice on the group size and the tradeoff of a plan, by simulation on its data."""
