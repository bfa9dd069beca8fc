"""The references of `measure: excess`: how they are trained by masked sums before round 1."""
