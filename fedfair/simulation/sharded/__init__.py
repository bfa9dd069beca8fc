"""A simulation whose collaborators are sharded over workers, which return partial sums."""
