"""Many runs at once: sweeps over settings, and the paper's experiments again. No public names."""
