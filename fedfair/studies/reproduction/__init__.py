"""The paper's experiments, run again: settings, runs, evidence. No public names."""
