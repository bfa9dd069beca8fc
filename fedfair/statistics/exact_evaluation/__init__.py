"""Exact evaluation: the quantiles of the losses of the output model, in four sums."""
