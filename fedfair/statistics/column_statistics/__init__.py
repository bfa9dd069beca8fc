"""Statistics of columns: counts, bins and means of declared columns, in a plan that trains nothing."""
