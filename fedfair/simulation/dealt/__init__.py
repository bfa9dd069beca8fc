"""A simulation whose collaborators are dealt to workers, which return partial sums."""
