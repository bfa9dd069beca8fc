"""The state of a run, its next request, and what an aggregate does to the model. No torch. No public names."""
