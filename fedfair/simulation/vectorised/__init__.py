"""All collaborators' local steps as a few batched tensor operations, for models whose gradient is written down."""
