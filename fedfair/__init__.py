"""fedfair: federated models that are fair to every sizeable group, without anyone naming the groups."""

__version__ = "0.1.0"
