"""What a repetition of the paper's experiments shows: charts, tables, a page and a summary. No public names."""
