"""The step that the federation makes with the mean of the sites' changes."""
