"""A run as others may watch it: its status as a value, and what is served of it. No public names."""
