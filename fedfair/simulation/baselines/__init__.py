"""Federated algorithms that only a simulation runs, and the registry that a plan's names lead to."""
