"""Slow and unsteady sites: how long a sum waits for them, when they are asked again, and whose streams last."""
