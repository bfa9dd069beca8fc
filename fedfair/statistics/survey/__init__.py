"""Survey: what the training records of all sites look like, column by column."""
