"""Slices: which cells of the columns hold the people whom the output model serves worst, in three sums."""
