"""Training: the weighted changes of model and threshold of one round."""
