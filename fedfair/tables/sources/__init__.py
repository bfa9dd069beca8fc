"""The sources of records, one module each: what a plan says of its features, and from its files to records."""
