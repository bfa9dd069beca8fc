"""Files that outlive a process: they appear whole, or grow and begin anew; tables, long vectors and locks."""
