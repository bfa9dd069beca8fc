"""Changes that are weighed by a power of their site's loss (q-FFL)."""
