"""Weights the losses of a batch, for each deployable algorithm."""
