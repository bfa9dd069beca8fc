"""The version of the product: a leaf, so that a module which states it imports nothing else."""

__version__ = "0.1.0"
