"""The release audit: how well losses of the output model tell training records from held-out ones."""
