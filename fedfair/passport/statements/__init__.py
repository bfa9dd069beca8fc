"""A room for each statement of a passport. No public names."""
