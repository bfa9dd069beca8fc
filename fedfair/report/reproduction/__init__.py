"""Reports a repetition of the paper's experiments: charts, tables, a page and a summary. No public names."""
