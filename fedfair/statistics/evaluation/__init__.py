"""Evaluation: losses, histograms, scores and metrics of a model, by split."""
