"""Pages and tables of a run's result, for people. No public names."""
