"""Reads records, one file per source, and deals them out to collaborators. No public names."""
