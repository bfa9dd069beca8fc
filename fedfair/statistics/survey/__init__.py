"""Survey: what the training records of everybody look like, column by column."""
