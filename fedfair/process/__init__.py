"""Runs processes: start and stop, locks and logs, and what a terminal shows. No public names."""
