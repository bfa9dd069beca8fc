"""Where records come from, one file per source, and how they are dealt out to collaborators."""
