"""The `fedfair` command: each module parses one group of commands, calls, and prints. No public names."""
