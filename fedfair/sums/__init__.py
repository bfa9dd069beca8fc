"""Additive contributions and their running sums: the only thing that ever travels from a site."""
